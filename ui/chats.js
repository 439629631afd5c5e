// The list of chats: opening, searching, renaming, taking them out and in.

let renaming = false;  // the list stays as it is meanwhile

function setTitle(title) {
    $('title').textContent = title || 'New chat';
    document.title = title ? `${title} · dgemma` : 'dgemma';
}

// Every word stands somewhere in the title or in what was said.
function isFound(c, words) {
    if (!words.length) return true;
    const all = [c.title, ...(store.chat(c.id)?.messages ?? []).map((m) => m.text)].join('\n').toLowerCase();
    return words.every((word) => all.includes(word));
}

function rename(c, row) {
    const field = h('input', {'aria-label': `New name of ${c.title}`});
    const end = (keep) => {
        if (!renaming) return;
        renaming = false;
        const title = field.value.trim();
        if (keep && title) {
            const whole = c.id === chat.id ? chat : store.chat(c.id);
            whole.title = title;
            if (c.id === chat.id) setTitle(title);
            store.rename(c.id, title);
        }
        listChats();
        document.querySelector(`.chat-row[data-id="${CSS.escape(c.id)}"] .name`)?.focus();
    };
    renaming = true;
    field.value = c.title;
    field.addEventListener('blur', () => end(true));
    field.addEventListener('keydown', (e) => {
        if (e.key === 'Enter' && !e.isComposing) {
            e.preventDefault();  // or it would press the button that has the focus next
            end(true);
        } else if (e.key === 'Escape') {
            e.stopPropagation();
            end(false);
        }
    });
    row.replaceChildren(field);
    field.select();
}

function chatRow(c) {
    const title = String(c.title || 'Chat');
    const row = h('div', {class: 'chat-row' + (c.id === chat.id ? ' current' : ''), 'data-id': c.id},
        h('button', {class: 'open', title, 'aria-current': c.id === chat.id ? 'true' : null, onclick: () => openChat(c.id)}, title),
        h('button', {class: 'name', 'aria-label': `Rename ${title}`, title: 'Rename', onclick: () => rename({...c, title}, row)}, '✎'),
        h('button', {class: 'gone', 'aria-label': `Delete ${title}`, title: 'Delete', onclick: () => deleteChat(c.id)}, '✕'));
    return row;
}

function listChats() {
    if (renaming) return;
    const focused = document.activeElement, row = focused?.closest('.chat-row');
    const place = [...$('chats').children].indexOf(row), chats = store.chats();
    const words = $('find').value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = chats.filter((c) => isFound(c, words));
    $('find').hidden = chats.length < 2 && !words.length;
    $('chats').replaceChildren(...found.map(chatRow), ...(words.length && !found.length ? [h('p', {class: 'fine'}, 'No chat has these words.')] : []));
    if (!row) return;
    const rows = [...$('chats').children];  // new ones; the focus stays on the same chat, or on the next where that is gone
    const next = rows.find((r) => r.dataset.id === row.dataset.id) || rows[place] || rows.at(-1);
    ((focused.className && next?.querySelector('.' + focused.className)) || $('new-chat')).focus();
}

function showChat() {
    const last = chat.messages.length - 1;
    $('thread').replaceChildren(...chat.messages.map((m, i) => articleOf(m, i === last)));
    setTitle(chat.title);
    listChats();
}

// ---- out and in ----

function exportChat() {
    const text = JSON.stringify(wireMessages(chat.messages), null, 2);
    const url = URL.createObjectURL(new Blob([text + '\n'], {type: 'application/json'}));
    h('a', {href: url, download: 'dgemma-chat.json'}).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// A message in OpenAI's form as the page keeps it; null for what has no place in a chat.
function fromWire(m, names) {
    const parts = Array.isArray(m?.content) ? m.content : [{type: 'text', text: m?.content}];
    const text = parts.map((p) => (p?.type === 'text' && asText(p.text)) || '').join('');
    const images = parts.map((p) => p?.image_url?.url ?? p?.image_url).filter((url) => asText(url)?.startsWith('data:image/'));
    if (m?.role === 'user') return {role: 'user', text, images};
    if (m?.role === 'tool') return {role: 'tool', text, call: m.tool_call_id, name: names.get(m.tool_call_id) ?? 'tool'};
    if (m?.role !== 'assistant') return null;
    const calls = asList(m.tool_calls).map((c) => ({id: c?.id, name: c?.function?.name, args: c?.function?.arguments}));
    for (const c of calls) names.set(c.id, c.name);
    return {role: 'assistant', text, thinking: m.reasoning_content, calls};
}

async function importChat(file) {
    try {
        const value = JSON.parse(await file.text()), names = new Map();
        const list = Array.isArray(value) ? value : asList(value?.messages);
        const messages = list.map((m) => fromWire(m, names)).filter(Boolean).map(cleanMessage);
        if (!messages.length) throw new TypeError('no messages');
        const first = messages.find((m) => m.role === 'user');
        const added = {...freshChat(), title: titleOf(first ?? {text: file.name}), messages};
        if (list.some((m) => m?.role === 'system' || m?.role === 'developer'))
            tell('The system message of this file was left out; Settings has the one that is used.');
        save(added);
        openChat(added.id);
    } catch {
        tell(`${file.name} is not a chat: that is a JSON file with a list of messages, as Export writes it.`);
    }
}
