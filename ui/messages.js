// What a message looks like. A message is {id, role, text} and, where they apply: images (data URLs), files [{name, text}], thinking,
// calls [{id, name, args}], call (of a tool's result), timings, state (stopped, broken), note, others (versions of an answer, each
// with the messages that followed it as its tail) and place (of this one among them).

function pretty(json) {
    try {
        return JSON.stringify(JSON.parse(json), null, 2);
    } catch {
        return json;
    }
}

function seconds(ms) {
    return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function speeds(timings) {
    const d = timings?.diffusion;
    if (!d) return '';
    return [`first text ${seconds(timings.first_text_ms)}`, `${timings.predicted_n} tokens`,
        `${d.n_steps} steps in ${d.n_blocks} ${d.n_blocks === 1 ? 'block' : 'blocks'}`, `${d.tokens_per_step.toFixed(1)} tokens/step`,
        `${timings.predicted_per_second.toFixed(1)} tokens/s`, `seed ${d.seed}`].join(' · ');
}

// One figure in sight; all of them for those who ask.
function speedLine(timings) {
    const all = speeds(timings);
    if (!all) return h('span', {class: 'speeds'});
    return h('details', {class: 'speeds'}, h('summary', {title: all}, `${timings.predicted_per_second.toFixed(0)} tokens/s`), h('span', null, all));
}

// Through the versions of an answer.
function pager(m, actions) {
    const n = m.others.length + 1;
    const to = (place, sign, label) => {
        const button = asking(h('button', {type: 'button', class: 'text', 'aria-label': label, onclick: () => actions.version(m, place)}, sign), actions);
        if (place < 0 || place >= n) {
            button.disabled = true;
            button.classList.remove('asks');
        }
        return button;
    };
    return h('span', {class: 'pager'}, to(m.place - 1, '‹', 'Previous answer'), `${m.place + 1}/${n}`, to(m.place + 1, '›', 'Next answer'));
}

function thumbs(images) {
    return h('div', {class: 'thumbs'}, ...images.map((src, i) => h('img', {src, alt: `Picture ${i + 1}`})));
}

// A button that sends something: not while an answer comes.
function asking(button, actions) {
    button.classList.add('asks');
    button.disabled = actions.isBusy();
    return button;
}

// ---- what people say ----

function userArticle(m, actions) {
    const body = h('div', {class: 'body'}, m.text);
    const files = (m.files ?? []).map((f) => h('details', {class: 'sent-file'}, h('summary', null, f.name), h('pre', {tabindex: 0}, f.text)));
    const el = h('article', {class: 'user', 'aria-label': 'You'}, m.images?.length ? thumbs(m.images) : null, ...files, m.text ? body : null);
    el.append(h('div', {class: 'tools'}, textButton('Edit', () => editIn(el, m, actions)), copyButton(() => m.text)));
    return el;
}

function editIn(el, m, actions) {
    const field = h('textarea', {rows: 3, 'aria-label': 'Edit the message'});
    field.value = m.text;
    const restore = () => {
        const article = userArticle(m, actions);
        el.replaceWith(article);
        article.querySelector('.tools button').focus();
    };
    const save = () => (field.value.trim() || m.images?.length || m.files?.length) && actions.edit(m, field.value.trim());
    field.addEventListener('keydown', (e) => {
        if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
            e.preventDefault();
            save();
        } else if (e.key === 'Escape') {
            e.stopPropagation();
            restore();
        }
    });
    el.replaceChildren(h('div', {class: 'editing'}, field,
        h('div', {class: 'buttons'}, textButton('Cancel', restore), asking(h('button', {type: 'button', onclick: save}, 'Send again'), actions))));
    field.focus();
}

function toolArticle(m) {
    return h('article', {class: 'tool', 'aria-label': `Result of ${m.name}`}, h('div', {class: 'body'}, `${m.name} → ${m.text}`));
}

// ---- what the model says ----

class AnswerView {
    static of = new WeakMap();  // by its article

    constructor(m, actions) {
        this.m = m;
        this.actions = actions;
        this.thoughtText = h('div');
        this.thoughtTitle = h('summary', null, 'Thoughts');
        this.thoughts = h('details', {class: 'thoughts', hidden: true}, this.thoughtTitle, this.thoughtText);
        this.body = h('div', {class: 'md'});
        this.calls = h('div');
        this.note = h('div', {class: 'note', hidden: true});
        this.tools = h('div', {class: 'tools'});
        this.panel = CanvasPanel.kept.get(m.id) || new CanvasPanel(m.id);
        this.el = h('article', {class: 'assistant', 'aria-label': 'Answer'}, this.thoughts, this.body, this.calls, this.note, this.panel.el, this.tools);
        this.shown = {text: null, thinking: null};
        this.panel.redo = (tokens, keep) => actions.redo(m, tokens, keep);
        AnswerView.of.set(this.el, this);
    }

    // As the answer comes; at most once for each frame of the screen.
    update() {
        const {m} = this;
        if (this.shown.thinking !== m.thinking) {
            this.thoughts.hidden = !m.thinking;
            this.thoughtText.textContent = this.shown.thinking = m.thinking || '';
        }
        if (this.shown.text !== m.text) markdown(this.body, this.shown.text = m.text);
    }

    wait(text) {
        this.note.className = 'note waiting';
        this.note.textContent = text;
        this.note.hidden = !text;
    }

    // pending: the results of its calls are missing.
    finish(pending) {
        const {m, actions} = this;
        this.el.classList.remove('live');
        this.thoughtTitle.textContent = 'Thoughts';
        this.update();
        showText(this.body, m.text);
        this.calls.replaceChildren();
        if (m.calls?.length) this.showCalls(pending);
        const text = m.note || (m.state === 'stopped' ? 'Stopped' + (m.text ? '.' : ' before the first block was finished.') : '')
            || (!m.text && !m.calls?.length ? 'The answer is empty.' : '');
        this.note.className = m.state === 'broken' ? 'note bad' : 'note';
        this.note.textContent = text;
        this.note.hidden = !text;
        this.tools.replaceChildren(speedLine(m.timings), ...(m.others?.length ? [pager(m, actions)] : []),
            ...editButtons(this), asking(textButton('Retry', () => actions.retry(m), 'Another answer'), actions), copyButton(() => m.text));
    }

    showCalls(pending) {
        const fields = [];
        this.m.calls.forEach((c) => {
            const card = h('div', {class: 'call'}, h('b', null, c.name), h('pre', {tabindex: 0}, pretty(c.args)));
            if (pending) {
                const field = h('textarea', {rows: 2, class: 'code', placeholder: 'What the tool says, as text or JSON'});
                fields.push(field);
                card.append(h('label', null, `Result of ${c.name}`, field));
            }
            this.calls.append(card);
        });
        if (pending)
            this.calls.append(asking(h('button', {type: 'button', class: 'send-results', onclick: () => this.actions.results(this.m, fields.map((f) => f.value))},
                fields.length > 1 ? 'Send the results' : 'Send the result'), this.actions));
    }
}
