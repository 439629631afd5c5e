// What stays in the browser: chats and settings in its local storage, the key until the tab is closed. The storage may be full,
// forbidden or filled by somebody else: nothing here throws, and what is read is looked at.

const MAX_CHATS = 50;
const MAX_CHAT = 2 << 20;  // characters of one; a larger one would push all others out
const LIST_ROOM = 512;     // characters that its line in the list of chats may take
const PREFIX = 'dgemma.';

// Browsers that forbid storage throw when it is only named, and some have none. Then a table takes its place, until the tab is closed.
function openStorage(name) {
    try {
        if (window[name]) return window[name];
    } catch { /* forbidden */ }
    const table = new Map();
    return {getItem: (key) => table.get(key) ?? null, setItem: (key, value) => table.set(key, value), removeItem: (key) => table.delete(key), forTab: true};
}

const longStorage = openStorage('localStorage'), tabStorage = openStorage('sessionStorage');

function readJson(storage, name, fallback) {
    try {
        const value = JSON.parse(storage.getItem(PREFIX + name));
        return value ?? fallback;
    } catch {
        return fallback;
    }
}

function tryWrite(name, value, storage = longStorage) {
    try {
        storage.setItem(PREFIX + name, JSON.stringify(value));
        return true;
    } catch {
        return false;
    }
}

function remove(name) {
    try {
        longStorage.removeItem(PREFIX + name);
    } catch { /* there is none, then */ }
}

const asList = (value) => (Array.isArray(value) ? value : []);
const asText = (value) => (typeof value === 'string' ? value : undefined);

// What the page itself would have written, whatever is there.
function cleanMessage(m) {
    const timed = typeof m.timings?.first_text_ms === 'number' && typeof m.timings.predicted_per_second === 'number'
        && typeof m.timings.diffusion?.tokens_per_step === 'number';
    const others = asList(m.others).filter((v) => v?.role === 'assistant').map((v) => ({...cleanMessage(v), tail: cleanMessages(v.tail)}));
    const files = asList(m.files).filter((f) => asText(f?.name) && asText(f.text) != null).map((f) => ({name: f.name, text: f.text}));
    return {
        ...(others.length ? {others, place: Number.isInteger(m.place) && m.place >= 0 && m.place <= others.length ? m.place : others.length} : {}),
        ...(files.length ? {files} : {}),
        id: asText(m.id) ?? newId(), role: m.role, text: asText(m.text) ?? '', thinking: asText(m.thinking),
        images: asList(m.images).filter((src) => asText(src)?.startsWith('data:image/')),
        calls: asList(m.calls).filter((c) => asText(c?.id) && asText(c.name)).map((c) => ({id: c.id, name: c.name, args: asText(c.args) ?? '{}'})),
        call: asText(m.call), name: asText(m.name), state: asText(m.state), note: asText(m.note), timings: timed ? m.timings : undefined,
    };
}

function cleanMessages(list) {
    return asList(list).filter((m) => m && ['user', 'assistant', 'tool'].includes(m.role)).map(cleanMessage);
}

function withoutImages(m) {
    if (m.others) return {...m, others: m.others.map((v) => ({...v, tail: v.tail?.map(withoutImages)}))};
    return m.images?.length ? {...m, images: undefined, text: (m.text + '\n[A picture was not kept.]').trim()} : m;
}

function writeChat(chat, others) {
    if (!tryWrite('chat.' + chat.id, chat)) return false;
    if (tryWrite('chats', [{id: chat.id, title: chat.title, at: chat.at}, ...others])) return true;
    if (!store.chats().some((c) => c.id === chat.id)) remove('chat.' + chat.id);  // nothing would lead to it
    return false;
}

// Whether the chat could be written if all others were gone: the storage may be full of something else, or take nothing at all.
function couldFit(chat, others) {
    const wanted = JSON.stringify(chat).length + LIST_ROOM;
    const held = [chat, ...others].reduce((n, c) => n + JSON.stringify(readJson(longStorage, 'chat.' + c.id, '')).length, 0);
    if (wanted > MAX_CHAT || !tryWrite('chats', store.chats())) return false;
    const fits = wanted <= held || tryWrite('probe', ' '.repeat(wanted - held));
    remove('probe');
    return fits;
}

const store = {
    forTab: !!longStorage.forTab,  // nothing outlives the tab

    settings() {
        const value = readJson(longStorage, 'settings', {});
        return {...value, system: asText(value.system), toolsText: asText(value.toolsText), tools: asList(value.tools), schemaText: asText(value.schemaText)};
    },
    saveSettings: (value) => tryWrite('settings', value),

    theme: () => asText(readJson(longStorage, 'theme', 'system')),
    saveTheme: (name) => tryWrite('theme', name),

    model: () => asText(readJson(longStorage, 'model', '')) ?? '',
    saveModel: (name) => tryWrite('model', name),

    key: () => asText(readJson(tabStorage, 'key', '')) ?? '',
    saveKey: (value) => tryWrite('key', value, tabStorage),

    // [{id, title, at}], the latest first
    chats() {
        return asList(readJson(longStorage, 'chats', [])).filter((c) => asText(c?.id));
    },

    chat(id) {
        const chat = readJson(longStorage, 'chat.' + id, null);
        if (!chat || !Array.isArray(chat.messages)) return null;
        return {id, title: String(chat.title ?? ''), at: Number(chat.at) || 0, messages: cleanMessages(chat.messages)};
    },

    // Its place in the list stays.
    rename(id, title) {
        const chat = readJson(longStorage, 'chat.' + id, null);
        if (chat) tryWrite('chat.' + id, {...chat, title});
        tryWrite('chats', store.chats().map((c) => (c.id === id ? {...c, title} : c)));
    },

    forget(id) {
        remove('chat.' + id);
        tryWrite('chats', store.chats().filter((c) => c.id !== id));
    },

    // Keeps a chat; if it has to be, without its pictures, and after that at the cost of the oldest others.
    // Says how it went: {kept, bare: without its pictures, dropped: titles of those that had to go}.
    save(chat) {
        const others = store.chats().filter((c) => c.id !== chat.id);
        const drop = () => {
            const oldest = others.pop();
            store.forget(oldest.id);
            return String(oldest.title || 'Chat');
        };
        while (others.length >= MAX_CHATS) drop();
        if (JSON.stringify(chat).length <= MAX_CHAT && writeChat(chat, others)) return {kept: true, bare: false, dropped: []};
        const bare = {...chat, messages: chat.messages.map(withoutImages)}, dropped = [];
        let kept = writeChat(bare, others);
        if (!kept && couldFit(bare, others)) {
            while (!kept && others.length) {
                dropped.push(drop());
                kept = writeChat(bare, others);
            }
        }
        return {kept, bare: chat.messages.some((m) => m.images?.length), dropped};
    },
};
