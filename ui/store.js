// What stays in the browser: chats and settings in its local storage, the key until the tab is closed. The storage may be full,
// forbidden or filled by somebody else: nothing here throws, and what is read is looked at.

const MAX_CHATS = 50;
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

const store = {
    settings: () => readJson(localStorage, 'settings', {}),
    saveSettings: (value) => tryWrite('settings', value),

    key: () => readJson(sessionStorage, 'key', ''),
    saveKey(value) {
        try {
            sessionStorage.setItem(PREFIX + 'key', JSON.stringify(value));
        } catch { /* it is asked for again, then */ }
    },

    // [{id, title, at}], the latest first
    chats() {
        const list = readJson(localStorage, 'chats', []);
        return Array.isArray(list) ? list.filter((c) => c && typeof c.id === 'string') : [];
    },

    chat(id) {
        const chat = readJson(localStorage, 'chat.' + id, null);
        if (!chat || !Array.isArray(chat.messages)) return null;
        const roles = ['user', 'assistant', 'tool'];
        const messages = chat.messages.filter((m) => m && roles.includes(m.role)).map((m) => ({...m, text: String(m.text ?? '')}));
        return {id, title: String(chat.title ?? ''), at: Number(chat.at) || 0, messages};
    },

    forget(id) {
        remove('chat.' + id);
        tryWrite('chats', store.chats().filter((c) => c.id !== id));
    },

    // Makes room by giving up the oldest chats, then this one's pictures. False: it could not be kept, or not whole.
    save(chat) {
        const others = store.chats().filter((c) => c.id !== chat.id);
        const bare = {...chat, messages: chat.messages.map((m) => ({...m, images: undefined}))};
        while (others.length >= MAX_CHATS) remove('chat.' + others.pop().id);
        const entry = {id: chat.id, title: chat.title, at: chat.at};
        const keep = () => tryWrite('chats', [entry, ...others]);
        for (;;) {
            if (tryWrite('chat.' + chat.id, chat) && keep()) return true;
            if (!others.length) break;
            remove('chat.' + others.pop().id);
        }
        tryWrite('chat.' + chat.id, bare) && keep();
        return false;
    },
};
