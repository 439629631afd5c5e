// Elements without markup: text only ever enters the page through text nodes.

const $ = (id) => document.getElementById(id);

// h('button', {class: 'text', onclick: f}, 'Copy'). Children: nodes, text, or null for nothing.
function h(tag, props, ...children) {
    const el = document.createElement(tag);
    for (const [name, value] of Object.entries(props || {})) {
        if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
        else if (value === true) el.setAttribute(name, '');
        else if (value !== false && value != null) el.setAttribute(name, value);
    }
    el.append(...children.filter((c) => c != null));
    return el;
}

function svg(tag, props) {
    const el = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(props || {})) el.setAttribute(name, value);
    return el;
}

function textButton(label, onclick, title) {
    return h('button', {type: 'button', class: 'text', title: title || null, onclick}, label);
}

// The clipboard is only there on pages that browsers call secure; a field and a command work on the others.
async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        const field = h('textarea', {class: 'hidden', 'aria-hidden': 'true'});
        field.value = text;
        document.body.append(field);
        field.select();
        const ok = document.execCommand('copy');
        field.remove();
        return ok;
    }
}

function copyButton(text) {
    const button = textButton('Copy', async () => {
        button.textContent = (await copyText(text())) ? 'Copied' : 'Could not copy';
        setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    });
    return button;
}

// Work that touches the page is done once a frame, however fast the events come.
function onceAFrame(work) {
    let waiting = false;
    return () => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => {
            waiting = false;
            work();
        });
    };
}

function announce(text) {
    $('announce').textContent = text;
}
