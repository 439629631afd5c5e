// Answers changed in place. A selected passage dissolves and settles anew while all else stays; tokens of a finished canvas are
// pinned and the rest is written again. And JSON as a tree.

const WAYS = [['Rewrite', 'Use other words.'], ['Shorter', 'Say it in fewer words.'], ['Fill', null]];  // Fill: as if nothing had stood there
const points = (text) => [...text].length;  // the server counts code points
const count = (text, words) => text.split(words).length - 1;

// Where the selected words stand in the answer's own text. The text has signs of Markdown in it that are not shown: words that are
// not found there as often as on the page have no certain place, and null is returned.
function findSelected(view) {
    const s = getSelection();
    if (!s.rangeCount || s.isCollapsed || !view.body.contains(s.anchorNode) || !view.body.contains(s.focusNode)) return null;
    const range = s.getRangeAt(0), words = range.toString().trim(), {text} = view.m;
    if (!words || count(text, words) !== count(view.body.textContent, words)) return null;
    const before = document.createRange();
    before.setStart(view.body, 0);
    before.setEnd(range.startContainer, range.startOffset);
    let start = -1;
    for (let n = count(before.toString(), words); n >= 0; n--) start = text.indexOf(words, start + 1);
    return start < 0 ? null : {start, end: start + words.length};
}

// ---- the buttons beside a selection ----

const picker = h('div', {class: 'picker', role: 'toolbar', 'aria-label': 'Write this passage anew', hidden: true});
document.body.append(picker);

function showPicker() {
    const node = getSelection().anchorNode, el = (node?.nodeType === 1 ? node : node?.parentElement)?.closest('article.assistant');
    const view = el && AnswerView.of.get(el), place = view && !actions.isBusy() && chat.messages.includes(view.m) ? findSelected(view) : null;
    picker.hidden = !place;
    if (!place) return;
    const box = getSelection().getRangeAt(0).getBoundingClientRect();
    picker.replaceChildren(...WAYS.map(([label, how]) => h('button', {type: 'button', onclick: () => rewrite(view, {text: view.m.text, ...place, how})}, label)));
    picker.style.left = `${Math.max(4, Math.min(box.left, innerWidth - picker.offsetWidth - 4))}px`;
    picker.style.top = `${Math.min(box.bottom + 6, innerHeight - picker.offsetHeight - 4)}px`;
}

document.addEventListener('selectionchange', onceAFrame(showPicker));
picker.addEventListener('pointerdown', (e) => e.preventDefault());  // or the selection would be gone before the click

// ---- a passage anew ----

// What the gap holds after a step. Lengths are tried first, which is no text yet.
function paintGap(mark, d) {
    const n = d.gap?.length ?? 0;
    mark.classList.toggle('trying', !!d.gap?.trying);
    mark.replaceChildren(...d.pieces.slice(0, n).map((piece, i) => h('span', {class: 'e' + level(d.entropy[i])}, visible(piece))));
}

// The conversation before the answer, as far as it is text.
function textsBefore(m) {
    const messages = wireMessages(chat.messages.slice(0, chat.messages.indexOf(m)));
    return messages.every((x) => typeof x.content === 'string' && x.role !== 'tool') && messages.at(-1)?.role === 'user' ? messages : undefined;
}

// job: {text, start, end, how, seed}: what the answer was, the passage in it, and how to write it.
async function rewrite(view, job) {
    const {m} = view, asked = chat, before = job.text.slice(0, job.start), after = job.text.slice(job.end);
    const old = job.how === null ? '' : job.text.slice(job.start, job.end), at = points(before);
    const seed = job.seed ?? settings.seed ?? Math.floor(Math.random() * 2 ** 31);
    const body = {...askedModel(), text: before + old + after, ranges: [[at, at + points(old)]], messages: textsBefore(m), seed, stream: true, diffusion: {drafts: true}};
    if (job.how !== null) body.instruction = job.how;
    const mark = h('mark', {class: 'gap'}, job.text.slice(job.start, job.end)), controller = new AbortController();
    let result = null;
    picker.hidden = true;
    getSelection().removeAllRanges();
    view.body.replaceChildren(h('div', {class: 'around'}, before, mark, after));
    setRunning({controller, chat: asked, m, edits: true});
    try {
        for await (const event of serverEvents(await call('/v1/edit', {method: 'POST', body: JSON.stringify(body), signal: controller.signal}))) {
            if (event.error) throw new Trouble('refused', 'The server refused: ' + event.error.message + '.');
            if (event.object === 'edit') result = event;
            else if (event.diffusion) paintGap(mark, event.diffusion);
        }
    } catch (e) {
        if (!controller.signal.aborted) tell(e.message);
        if (e.kind === 'gone' || e.kind === 'broken') reconnect();
    }
    if (running?.controller === controller) setRunning(null);
    if (result) {
        m.edits = [...(m.edits ?? []), m.text];
        m.text = result.text;
        view.job = {...job, seed: seed + 1};
        announce('Now: ' + m.text.slice(0, 1000));
        if (!asked.deleted) save(asked);
    }
    view.shown.text = null;
    view.finish(false);
}

// Behind an answer that was changed: back, or another wording.
function editButtons(view) {
    const {m} = view, undo = () => {
        m.text = m.edits.pop();
        save(chat);
        view.finish(false);
    };
    const again = () => {
        m.text = m.edits.pop();
        rewrite(view, view.job);
    };
    return !m.edits?.length ? [] : [asking(textButton('Undo', undo, 'The answer as it was before'), actions),
        ...(view.job ? [asking(textButton('Another', again, 'The same passage in other words'), actions)] : [])];
}

// ---- JSON as a tree ----

function jsonTree(value, name) {
    const label = name === undefined ? [] : [h('b', null, String(name)), ': '];
    if (value === null || typeof value !== 'object') return h('div', {class: 'leaf'}, ...label, h('code', null, JSON.stringify(value)));
    const entries = Object.entries(value), list = Array.isArray(value);
    return h('details', {class: 'node', open: true}, h('summary', null, ...label, list ? `[${entries.length}]` : `{${entries.length}}`),
        ...entries.map(([key, v]) => jsonTree(v, list ? Number(key) : key)));
}

// The text of an answer: a tree where it is JSON as a whole.
function showText(el, text) {
    const trimmed = text.trim();
    if (/^[[{]/.test(trimmed)) {
        try {
            el.replaceChildren(h('div', {class: 'tree'}, jsonTree(JSON.parse(trimmed))));
            return;
        } catch { /* it only looks like it */ }
    }
    markdown(el, text);
}
