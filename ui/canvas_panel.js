// The canvas: what stood in every position after each step, how certain it was, and a way back through the steps.
// One panel both follows an answer and looks back on it.

const FRAME_BUDGET = 1 << 20;  // positions kept over all answers of this page; beyond, the oldest answers lose theirs
const MAX_FRAMES = 4096;       // of one answer
const LEVELS = 8;
const SIGNS = /^<(\|[^<>]*|[^<>]*\||pad|eos|bos|unk|mask)>$/;

const pieceTable = new Map();  // the same words come again and again: one string for each

function keepPiece(text) {
    if (!pieceTable.has(text)) pieceTable.set(text, text);
    return pieceTable.get(text);
}

// 0: certain; 7: anything could stand there. exp(-H) is the share of one word among equally likely ones.
function level(entropy) {
    return Math.round((LEVELS - 1) * (1 - Math.exp(-Math.max(0, entropy))));
}

function frameOf(draft) {
    const n = draft.pieces.length, levels = new Uint8Array(n), accepted = new Uint8Array(n);
    let taken = 0, sum = 0;
    for (let i = 0; i < n; i++) {
        levels[i] = level(draft.entropy[i]);
        taken += accepted[i] = draft.accepted[i] ? 1 : 0;
        sum += draft.entropy[i];
    }
    return {block: draft.block, step: draft.step, maxSteps: draft.max_steps, pieces: draft.pieces.map(keepPiece), ids: draft.ids, levels, accepted, taken,
        pinned: draft.pinned,
        mean: n ? sum / n : 0};
}

function visible(piece) {
    if (SIGNS.test(piece)) return piece === '<pad>' ? ' ·' : ' ' + piece;
    return piece.replace(/\n/g, '↵\n');
}

function legend() {
    const ramp = h('span', {class: 'ramp'});
    for (let i = 0; i < LEVELS; i++) ramp.append(h('i', {class: 'e' + i}));
    const key = (look, label) => h('span', null, h('i', {class: 'key ' + look}), label);
    return h('div', {class: 'legend', 'aria-hidden': 'true'}, h('span', null, 'certain', ramp, 'unsure'),
        key('in', 'accepted'), key('out', 'renoised'), key('line', 'mean entropy'), key('area', 'share accepted'));
}

class CanvasPanel {
    static kept = new Map();  // by message, the oldest first: they outlive the switch to another chat

    constructor(message) {
        this.message = message;
        this.frames = [];
        this.at = -1;           // the frame that is shown
        this.following = true;  // until somebody looks back
        this.drawn = [];        // what each cell shows: frames differ in a few
        this.title = h('summary', null, 'Canvas');
        this.cells = h('div', {class: 'cells', role: 'img', tabindex: 0, 'aria-label': 'Canvas'});
        this.slider = h('input', {type: 'range', min: 0, max: 0, value: 0, step: 1, 'aria-label': 'Step', oninput: () => this.seek(Number(this.slider.value))});
        this.where = h('span', {class: 'where'});  // no <output>: screen readers would say every step
        this.play = h('button', {type: 'button', class: 'icon', 'aria-label': 'Play the steps', onclick: () => this.toggle()}, '▶');
        this.share = svg('path', {class: 'share'});
        this.mean = svg('path', {class: 'mean'});
        this.edges = svg('path', {class: 'edge'});
        this.head = svg('path', {class: 'head'});
        this.plot = svg('svg', {class: 'plot', preserveAspectRatio: 'none', viewBox: '0 0 1 100', role: 'img'});
        this.plot.append(this.share, this.edges, this.mean, this.head);
        this.plot.addEventListener('pointerdown', (e) => this.point(e));
        this.plot.addEventListener('pointermove', (e) => e.buttons && this.point(e));
        this.pins = new Map();  // of a finished canvas, by block: positions that are to stay
        this.again = h('button', {type: 'button', class: 'text redo', hidden: true, onclick: () => this.sendPins()}, 'Keep these, write the rest again');
        this.cells.addEventListener('click', (e) => this.pin([...this.cells.childNodes].indexOf(e.target)));
        this.el = h('details', {class: 'panel', open: true, hidden: true}, this.title, this.cells, this.again,
            h('div', {class: 'scrub'}, this.play, this.slider, this.where), this.plot, legend());
        this.el.addEventListener('toggle', () => this.draw());
        this.showLatest = onceAFrame(() => {
            this.el.hidden = false;
            if (this.following) this.at = this.frames.length - 1;
            this.draw();
        });
    }

    // ---- while the answer comes ----

    add(draft) {
        if (this.frames.length >= MAX_FRAMES) this.frames.splice(0, MAX_FRAMES / 4);
        this.frames.push(frameOf(draft));
        this.showLatest();
    }

    // The answer is there: the panel folds, unless somebody is using it.
    end() {
        if (!this.frames.length) return;
        if (this.following) this.el.open = false;
        this.at = Math.min(this.at < 0 ? 0 : this.at, this.frames.length - 1);
        const blocks = this.frames.at(-1).block + 1;
        this.title.textContent = `Canvas: ${this.frames.length} steps in ${blocks} ${blocks > 1 ? 'blocks' : 'block'}`;
        this.ended = true;
        CanvasPanel.kept.set(this.message, this);
        CanvasPanel.giveUpOldest();
        this.draw();
    }

    // ---- pins ----

    // The canvas as it was when its block ended; only there can tokens be pinned.
    lastOf(block) {
        return this.frames.findLast((f) => f.block === block);
    }

    pin(i) {
        const frame = this.frames[this.at];
        if (i < 0 || !this.ended || !frame?.ids || frame !== this.lastOf(frame.block)) return;
        const pins = this.pins.get(frame.block) ?? new Set();
        if (!pins.delete(i)) pins.add(i);
        this.pins.set(frame.block, pins);
        this.again.hidden = ![...this.pins.values()].some((p) => p.size);
        this.drawCells(frame);
    }

    sendPins() {
        const tokens = [], keep = [];
        for (let block = 0; this.lastOf(block)?.ids; block++)
            for (const [i, id] of this.lastOf(block).ids.entries()) {
                const stays = this.pins.get(block)?.has(i);
                if (stays) keep.push([tokens.length, tokens.length + 1]);
                tokens.push(stays ? id : null);
            }
        this.redo?.(tokens, keep);
    }

    static forget(message) {
        const panel = CanvasPanel.kept.get(message);
        panel?.pause();
        panel?.el.remove();
        CanvasPanel.kept.delete(message);
    }

    static giveUpOldest() {
        const size = (p) => p.frames.reduce((n, f) => n + f.pieces.length, 0);
        let total = [...CanvasPanel.kept.values()].reduce((n, panel) => n + size(panel), 0);
        for (const [message, panel] of CanvasPanel.kept) {
            if (total <= FRAME_BUDGET || CanvasPanel.kept.size === 1) break;
            total -= size(panel);
            CanvasPanel.forget(message);
        }
    }

    // ---- looking back ----

    seek(i) {
        this.following = false;
        this.at = Math.max(0, Math.min(i, this.frames.length - 1));
        this.draw();
    }

    point(e) {
        const box = this.plot.getBoundingClientRect();
        this.seek(Math.round((e.clientX - box.left) / box.width * (this.frames.length - 1)));
    }

    toggle() {
        if (this.timer) return this.pause();
        this.seek(this.at >= this.frames.length - 1 ? 0 : this.at);
        this.play.textContent = '❚❚';
        this.play.setAttribute('aria-label', 'Pause');
        this.timer = setInterval(() => (this.at >= this.frames.length - 1 ? this.pause() : this.seek(this.at + 1)), 160);
    }

    pause() {
        clearInterval(this.timer);
        this.timer = 0;
        this.play.textContent = '▶';
        this.play.setAttribute('aria-label', 'Play the steps');
    }

    // ---- drawing ----

    draw() {
        const frame = this.frames[this.at];
        if (!frame) return;
        const place = `block ${frame.block + 1}, step ${frame.step + 1}`;
        if (!this.ended) this.title.textContent = `Canvas: ${place} of at most ${frame.maxSteps}`;
        if (!this.el.open) return;
        this.drawCells(frame);
        this.slider.max = this.frames.length - 1;
        this.slider.value = this.at;
        this.slider.setAttribute('aria-valuetext', place);
        this.where.textContent = `${place} · ${frame.taken}/${frame.pieces.length} accepted`;
        this.cells.setAttribute('aria-label', `Canvas at ${place}: ${frame.taken} of ${frame.pieces.length} tokens accepted, mean entropy ${frame.mean.toFixed(2)}`);
        this.drawPlot(frame);
    }

    drawCells(frame) {
        const n = frame.pieces.length, pins = frame === this.lastOf(frame.block) ? this.pins.get(frame.block) : null;
        while (this.cells.childNodes.length < n) this.cells.append(h('span'));
        while (this.cells.childNodes.length > n) this.cells.lastChild.remove();
        this.drawn.length = n;
        for (let i = 0; i < n; i++) {
            const piece = frame.pieces[i];
            const look = (frame.accepted[i] ? 'in e' : 'out e') + frame.levels[i] + (SIGNS.test(piece) ? ' sign' : '')
                + (frame.pinned?.[i] || pins?.has(i) ? ' pinned' : '');
            const was = this.drawn[i] || (this.drawn[i] = {});
            const cell = this.cells.childNodes[i];
            if (was.piece !== piece) cell.textContent = visible(was.piece = piece);
            if (was.look !== look) cell.className = was.look = look;
        }
    }

    drawPlot(frame) {
        const frames = this.frames, last = Math.max(1, frames.length - 1);
        const top = Math.max(0.5, ...frames.map((f) => f.mean));
        let mean = '', share = 'M0 100', edges = '';
        frames.forEach((f, i) => {
            const fresh = i && f.block !== frames[i - 1].block;
            mean += `${i && !fresh ? 'L' : 'M'}${i} ${(96 - 90 * f.mean / top).toFixed(1)}`;
            share += `L${i} ${(100 - 100 * f.taken / (f.pieces.length || 1)).toFixed(1)}`;
            if (fresh) edges += `M${i - 0.5} 0V100`;
        });
        this.plot.setAttribute('viewBox', `0 0 ${last} 100`);
        this.plot.setAttribute('aria-label', `Mean entropy over ${frames.length} steps: ${frame.mean.toFixed(2)} here, ${top.toFixed(2)} at most`);
        this.mean.setAttribute('d', mean);
        this.share.setAttribute('d', `${share}L${frames.length - 1} 100Z`);
        this.edges.setAttribute('d', edges);
        this.head.setAttribute('d', `M${this.at} 0V100`);
    }
}
