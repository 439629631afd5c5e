/* Upper and lower case of letters beyond ASCII: the pairs of Unicode 14. */
#ifndef DG_TEXT_LETTER_CASE_H
#define DG_TEXT_LETTER_CASE_H

#include <stdint.h>

/* The lower-case (upper-case) partner of a character, or the character itself. Those whose partner
 * is more than one character have none here. */
uint32_t dg_letter_lower(uint32_t c);
uint32_t dg_letter_upper(uint32_t c);

#endif
