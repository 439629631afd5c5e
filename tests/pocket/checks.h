/* Whether an answer is right. A prompt of the evaluation says how it is checked:
 *
 *   {"kind": "exact", "text": T}          the answer is T
 *   {"kind": "picture", "text": T}        the same, about a picture
 *   {"kind": "any", "texts": [T, …], "behind": [B, …]}
 *                                         the answer is one of these; behind, where given: one of
 *                                         them after one of those and a line break
 *   {"kind": "contains", "all": [P, …]}   each phrase stands in it, whatever its case
 *   {"kind": "json", "value": V}          the answer is JSON and equal to V
 *   {"kind": "calls", "calls": [{"name": N, "arguments": {…}}, …], "text": T}
 *                                         these calls and no others, in any order; T, where given:
 *                                         what is said beside them, null for nothing
 *   {"kind": "story", "elements": [P, …], "grammar": G}
 *   {"kind": "couplet", …}                each phrase stands in it, and the whole follows the
 *                                         grammar G.txt (grammar.h)
 *   {"kind": "person", "rule": R, "typed": T}
 *                                         a person who typed T would accept it (person.h)
 *
 * Space around an answer does not count, numbers in JSON are compared by value. Beside its kind,
 * every answer must end by itself: with its turn, or to wait for its calls. Where a thought is due
 * there must be one, and something said or called behind it; with thinking off there must be none.
 */
#ifndef DG_TESTS_CHECKS_H
#define DG_TESTS_CHECKS_H

#include <jansson.h>
#include "dgemma.h"

typedef struct pocket_answer {
    const char *text, *thought; /* "" where there is none */
    const json_t *calls;        /* array of {"name", "arguments"} */
    bool thinking;              /* is on: there may be a thought */
    bool thought_due;           /* there must be one */
    dgemma_end end;
} pocket_answer;

typedef struct pocket_verdict {
    bool right;
    bool parsed;   /* JSON that can be read, if wrong otherwise */
    char why[256]; /* not right: the first thing that is wrong */
} pocket_verdict;

/* Judges an answer. grammars: the folder of the grammar files. DGEMMA_E_FORMAT and others: the
 * check itself cannot be read, *v says nothing. */
dgemma_status pocket_check(pocket_verdict *v, const json_t *check, const pocket_answer *a,
                           const char *grammars, dgemma_error *err);

#endif
