// What stays in the browser: chats and settings in its local storage, the key until the tab is closed. The storage may be full,
// forbidden or filled by somebody else: nothing here throws, and what is read is looked at.

const MAX_CHATS = 50;
const MAX_CHAT = 2 << 20;  // characters of one; a larger one would push all others out
const PREFIX = 'dgemma.';

function readJson(storage, name, fallback) {
    try {
        const value = JSON.parse(storage.getItem(PREFIX + name));
        return value ?? fallback;
    } catch {
        return fallback;
    }
}

function tryWrite(name, value) {
    try {
        localStorage.setItem(PREFIX + name, JSON.stringify(value));
        return true;
    } catch {
        return false;
    }
}

function remove(name) {
    try {
        localStorage.removeItem(PREFIX + name);
    } catch { /* there is none, then */ }
}

const asList = (value) => (Array.isArray(value) ? value : []);
const asText = (value) => (typeof value === 'string' ? value : undefined);

// What the page itself would have written, whatever is there.
function cleanMessage(m) {
    const timed = typeof m.timings?.first_text_ms === 'number' && typeof m.timings.predicted_per_second === 'number'
        && typeof m.timings.diffusion?.tokens_per_step === 'number';
    return {
        id: asText(m.id) ?? newId(), role: m.role, text: asText(m.text) ?? '', thinking: asText(m.thinking),
        images: asList(m.images).filter((src) => asText(src)?.startsWith('data:image/')),
        calls: asList(m.calls).filter((c) => asText(c?.id) && asText(c.name)).map((c) => ({id: c.id, name: c.name, args: asText(c.args) ?? '{}'})),
        call: asText(m.call), name: asText(m.name), state: asText(m.state), note: asText(m.note), timings: timed ? m.timings : undefined,
    };
}

function withoutImages(m) {
    return m.images?.length ? {...m, images: undefined, text: (m.text + '\n[A picture was not kept.]').trim()} : m;
}

const store = {
    settings() {
        const value = readJson(localStorage, 'settings', {});
        return {...value, system: asText(value.system), toolsText: asText(value.toolsText), tools: asList(value.tools)};
    },
    saveSettings: (value) => tryWrite('settings', value),

    key: () => readJson(sessionStorage, 'key', ''),
    saveKey(value) {
        try {
            sessionStorage.setItem(PREFIX + 'key', JSON.stringify(value));
        } catch { /* it is asked for again, then */ }
    },

    // [{id, title, at}], the latest first
    chats() {
        return asList(readJson(localStorage, 'chats', [])).filter((c) => asText(c?.id));
    },

    chat(id) {
        const chat = readJson(localStorage, 'chat.' + id, null);
        if (!chat || !Array.isArray(chat.messages)) return null;
        const messages = chat.messages.filter((m) => m && ['user', 'assistant', 'tool'].includes(m.role)).map(cleanMessage);
        return {id, title: String(chat.title ?? ''), at: Number(chat.at) || 0, messages};
    },

    forget(id) {
        remove('chat.' + id);
        tryWrite('chats', store.chats().filter((c) => c.id !== id));
    },

    // Makes room by giving up the oldest chats; one that is too large loses its pictures. False: it could not be kept, or not whole.
    save(chat) {
        let kept = chat;
        if (JSON.stringify(chat).length > MAX_CHAT) kept = {...chat, messages: chat.messages.map(withoutImages)};
        const others = store.chats().filter((c) => c.id !== chat.id);
        while (others.length >= MAX_CHATS) remove('chat.' + others.pop().id);
        const entry = {id: chat.id, title: chat.title, at: chat.at};
        while (!(tryWrite('chat.' + chat.id, kept) && tryWrite('chats', [entry, ...others]))) {
            if (!others.length || JSON.stringify(kept).length > MAX_CHAT) return false;
            remove('chat.' + others.pop().id);
        }
        return kept === chat;
    },
};
