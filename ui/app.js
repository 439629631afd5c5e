// The page: which chat is open, what is under way, and what the buttons do.

const SAMPLES = ['Tell me a story about Ada and a brave otter in the library.', 'What is the capital of France?', 'What is 17 + 25?',
    'Write a rhyming couplet about a sleepy cat and the moon.'];  // tests/pocket/test_prompts.sh asks the smallest model
const BUSY_TRIES = 20;
const NOTICE_MS = 5000, NOTICE_MS_LETTER = 60;  // how long a notice stays

let chat = freshChat();
let running = null;   // {controller, chat, m, cut} while an answer comes
let server = {};      // its /props
let following = true; // the end of the conversation stays in sight
let lastTop = 0;

function newId() {
    return Math.random().toString(36).slice(2, 12) + Date.now().toString(36);
}

function freshChat() {
    return {id: newId(), title: '', at: Date.now(), messages: []};
}

// ---- the server's state ----

function showServer(state, text) {
    $('server').className = 'server ' + state;
    $('server-text').textContent = text;
    $('server-text').hidden = false;
}

// One line for how things stand; what happened once has its own, until somebody has read it.
let standing = null;
const told = new Set();

function showLine(line) {
    if (line) $('notice').append(line);
    $('notice').hidden = !$('notice').childElementCount;
}

function notice(text, label, action) {
    standing?.remove();
    standing = text ? h('div', null, h('span', null, text), label ? textButton(label, action) : null) : null;
    showLine(standing);
}

// once: a chat's id, for what is true again with each of its messages.
function tell(text, once) {
    if (told.has(once + text) || [...$('notice').querySelectorAll('span')].some((line) => line.textContent === text)) return;
    if (once) told.add(once + text);
    const leave = () => {
        line.remove();
        showLine(null);
    };
    const line = h('div', null, h('span', null, text), textButton('Close', () => { leave(); focusAsk(); }));
    showLine(line);
    // Whoever looks at it still has it before them.
    const wait = setInterval(() => {
        if (line.matches(':hover, :focus-within')) return;
        clearInterval(wait);
        leave();
    }, NOTICE_MS + NOTICE_MS_LETTER * text.length);
}

async function connect() {
    try {
        server = await readProps();
        showServer('ok', server.model_alias || 'connected');
        showModels();
        fillPlaceholders();
        showScenes();
        return true;
    } catch (e) {
        if (e.kind === 'key') askKey(connect);
        else reconnect();
        return false;
    }
}

// Asks now and then whether the server is back; one such loop at a time.
let reconnecting = false;
async function reconnect() {
    if (reconnecting) return;
    reconnecting = true;
    showServer('gone', 'Not connected');
    notice('The server cannot be reached. Trying again every two seconds.');
    for (;;) {
        await new Promise((done) => setTimeout(done, 2000));
        try {
            await call('/health');
            break;
        } catch { /* still gone */ }
    }
    reconnecting = false;
    notice('');
    announce('The server is back.');
    await connect();
}

function askKey(then) {
    showServer('gone', 'Key needed');
    const dialog = $('key-dialog');
    $('key-error').textContent = store.key() ? 'The server did not take this key.' : '';
    $('key-input').value = '';
    dialog.returnValue = '';
    dialog.onclose = () => {
        if (dialog.returnValue === 'save' && $('key-input').value) {
            store.saveKey($('key-input').value);
            then();
        } else {
            notice('The server asks for an API key.', 'Enter the key', () => askKey(then));
        }
    };
    notice('');
    if (!dialog.open) dialog.showModal();
}

// ---- requests ----

function content(m) {
    const text = withFiles(m);
    if (!m.images?.length) return text;
    const parts = m.images.map((url) => ({type: 'image_url', image_url: {url}}));
    return text ? [...parts, {type: 'text', text}] : parts;
}

// The server takes so many pictures with one request, earlier messages' among them: the newest ones go.
function withNewestPictures(messages) {
    let left = MAX_PICTURES;
    return [...messages].reverse().map((m) => {
        const images = m.images?.slice(-left || Infinity);
        left -= images?.length ?? 0;
        if (images?.length === m.images?.length) return m;
        tell(`Only the newest ${MAX_PICTURES} pictures of this chat are sent.`, chat.id);
        return {...m, images, text: m.text || '[Pictures were left out.]'};
    }).reverse();
}

// A chat in OpenAI's form. Answers that never came are left out.
function wireMessages(messages) {
    const out = settings.system?.trim() ? [{role: 'system', content: settings.system}] : [];
    for (const m of messages) {
        if (m.role === 'user') out.push({role: 'user', content: content(m)});
        else if (m.role === 'tool') out.push({role: 'tool', tool_call_id: m.call, content: m.text});
        else if (m.calls?.length)
            out.push({role: 'assistant', content: m.text || null, reasoning_content: m.thinking || undefined,
                tool_calls: m.calls.map((c) => ({id: c.id, type: 'function', function: {name: c.name, arguments: c.args}}))});
        else if (m.text) out.push({role: 'assistant', content: m.text});
    }
    return out;
}

// canvas: tokens that the answer starts from; it goes with no form that the answer is held to.
function requestBody(messages, seed, canvas) {
    const body = {...askedModel(), messages: wireMessages(withNewestPictures(messages)), stream: true, diffusion: {drafts: true, ids: true}};
    if (canvas) body.diffusion.canvas = canvas;
    else if (settings.schema) body.response_format = {type: 'json_schema', json_schema: {name: 'answer', schema: settings.schema}};
    for (const name of ['steps', 't_min', 't_max', 'entropy_bound'])
        if (settings[name] != null) body.diffusion[name] = settings[name];
    if (settings.settled) body.diffusion.settled_steps = settings.settled_steps ?? 2;
    if (settings.max_tokens != null) body.max_tokens = settings.max_tokens;
    if (settings.thinking) body.enable_thinking = true;
    if (settings.tools?.length && !canvas) body.tools = settings.tools;
    const chosen = seed ?? settings.seed;
    if (chosen != null) body.seed = chosen;
    return body;
}

// A busy server is asked again after a while, as long as nobody presses Stop.
async function askPatiently(body, signal, on, view) {
    for (let tries = 1; ; tries++) {
        try {
            return await ask(body, signal, on);
        } catch (e) {
            if (e.kind !== 'busy' || tries === BUSY_TRIES) throw e;
            view.wait(`${e.message} Asking again in ${e.seconds} s.`);
            await new Promise((done, fail) => {
                setTimeout(done, e.seconds * 1000);
                signal.addEventListener('abort', fail, {once: true});
            });
            view.wait('');
        }
    }
}

function handlers(m, view, later) {
    return {
        text(piece) { m.text += piece; later(); },
        thinking(piece) { m.thinking = (m.thinking || '') + piece; view.thoughtTitle.textContent = 'Thinking…'; later(); },
        call(c) { (m.calls ||= []).push(c); },
        draft(d) { view.panel.add(d); view.wait(''); later(); },
        timings(t) { m.timings = t; },
        finish(reason) { if (reason === 'length') m.note = 'Cut off: the answer reached the longest length allowed.'; },
    };
}

// An answer beside its other versions, in their order; each has what followed it as its tail.
function versionsOf(m, tail) {
    const {others = [], place = 0, ...own} = m, all = [...others];
    all.splice(place, 0, {...own, tail});
    return all;
}

// What another answer to the same question keeps of those before.
function earlier(cut) {
    const [old, ...tail] = cut?.messages ?? [];
    if (old?.role !== 'assistant' || cameToNothing(old)) return old?.others ? {others: old.others, place: old.others.length} : {};
    const others = versionsOf(old, tail);
    return {others, place: others.length};
}

// An answer that ended before anything of it could be read.
const cameToNothing = (m) => m.state && !m.text && !m.calls?.length;

// cut: what this answer takes the place of.
async function answer(seed, cut, canvas) {
    const asked = chat, m = {id: newId(), role: 'assistant', text: '', ...earlier(cut)};
    const body = requestBody(asked.messages, seed, canvas);
    const view = new AnswerView(m, actions);
    const controller = new AbortController();
    asked.messages.push(m);
    view.el.classList.add('live');
    view.wait('Waiting for the first step…');
    $('thread').append(view.el);
    setRunning({controller, chat: asked, m, cut});
    focusAsk();
    scrollToEnd(true);
    const later = onceAFrame(() => {
        if (!view.el.classList.contains('live')) return;
        view.update();
        scrollToEnd();
    });
    try {
        await askPatiently(body, controller.signal, handlers(m, view, later), view);
    } catch (e) {
        if (controller.signal.aborted) m.state = 'stopped';
        else broke(m, e, cut);
    }
    if (running?.controller === controller) setRunning(null);
    view.panel.end();
    view.finish(!!m.calls?.length && m.state !== 'stopped');
    announce(m.note || (m.calls?.length ? 'The model asks for a tool.' : 'Answer: ' + m.text.slice(0, 1000)));
    if (cut && cameToNothing(m)) putBack(asked, cut, m);
    else if (!m.others) cut?.messages.forEach((old) => CanvasPanel.forget(old.id));
    scrollToEnd();
    if (!asked.deleted) save(asked);
}

function broke(m, e, cut) {
    m.state = 'broken';
    m.note = e.kind ? e.message : 'The page could not read the answer: ' + e.message;
    if (e.kind === 'gone' || e.kind === 'broken') reconnect();
    else if (e.kind === 'key') askKey(() => connect().then((ok) => ok && actions.retry(cut ? cut.messages[0] : m)));
    else if (cut) tell(m.note + ' The chat is as it was.');
}

// ---- what can be done ----

const canRedo = (m) => !running && chat.messages.includes(m);

// Takes a message and all that follow out of the chat, to be put back if nothing comes in their place.
function cutFrom(m) {
    const index = chat.messages.indexOf(m), articles = [...$('thread').childNodes].slice(index);
    for (const article of articles) article.remove();
    return {index, messages: chat.messages.splice(index), articles};
}

// An edited message is still open then, with what was typed.
function putBack(asked, cut, m) {
    CanvasPanel.forget(m.id);
    asked.messages.splice(cut.index, Infinity, ...cut.messages);
    if (asked !== chat) return;
    $('thread').replaceChildren(...[...$('thread').childNodes].slice(0, cut.index), ...cut.articles);
}

// Who talks on leaves a call without its result: it can no longer be sent.
function retireForms() {
    for (const part of $('thread').querySelectorAll('.call textarea, .send-results')) {
        part.disabled = true;
        part.classList.remove('asks');
    }
}

const actions = {
    isBusy: () => !!running,

    // Another answer; where the seed is set, the next one, or it would be the same.
    retry(m) {
        const used = m.timings?.diffusion?.seed;
        if (canRedo(m) && m.role === 'assistant') answer(settings.seed != null && used != null ? used + 1 : undefined, cutFrom(m));
    },

    // The answer again around tokens of its canvas that stay.
    redo(m, tokens, keep) {
        const used = m.timings?.diffusion?.seed;
        if (canRedo(m)) answer(used != null ? used + 1 : undefined, cutFrom(m), {tokens, keep});
    },

    edit(m, text) {
        if (canRedo(m)) say({id: newId(), role: 'user', text, images: m.images, files: m.files}, cutFrom(m));
    },

    // Another version of an answer, with all that followed it.
    version(m, to) {
        if (!canRedo(m)) return;
        const index = chat.messages.indexOf(m), all = versionsOf(m, chat.messages.slice(index + 1));
        const [{tail, ...own}] = all.splice(to, 1);
        chat.messages.splice(index, Infinity, {...own, others: all, place: to}, ...(tail ?? []));
        save(chat);
        showChat();
    },

    results(m, texts) {
        if (!canRedo(m) || m !== chat.messages.at(-1)) return;
        const form = $('thread').lastChild;
        m.calls.forEach((c, i) => addMessage({id: newId(), role: 'tool', call: c.id, name: c.name, text: texts[i]}));
        const view = new AnswerView(m, actions);
        view.finish(false);
        form.replaceWith(view.el);
        save(chat);
        answer();
    },
};

function articleOf(m, isLast) {
    if (m.role === 'user') return userArticle(m, actions);
    if (m.role === 'tool') return toolArticle(m);
    const view = new AnswerView(m, actions);
    view.finish(isLast && !!m.calls?.length && m.state !== 'stopped');
    return view.el;
}

function addMessage(m) {
    chat.messages.push(m);
    $('thread').append(articleOf(m, false));
}

// Its first line, or what came with it. How much of it there is room for is the screen's business.
function titleOf(m) {
    return m.text.trim().split('\n')[0].slice(0, 120) || m.files?.[0]?.name || 'Picture';
}

// cut: what is said anew, and all that followed. It stays in the storage until there is an answer.
function say(m, cut) {
    if (!chat.title) {
        chat.title = titleOf(m);
        setTitle(chat.title);
    }
    chat.at = Date.now();
    retireForms();
    addMessage(m);
    if (!cut) save(chat);
    answer(undefined, cut);
}

function submit() {
    const text = $('ask').value.trim();
    sendWhenRead = reading > 0;
    if (sendWhenRead) announce('The message is sent when its files are read.');
    if (running || sendWhenRead || (!text && !pictures.length && !texts.length)) return;
    const m = {id: newId(), role: 'user', text};
    if (pictures.length) m.images = pictures;
    if (texts.length) m.files = texts;
    pictures = [];
    texts = [];
    showPictures();
    $('ask').value = '';
    fitAsk();
    say(m);
}

function setRunning(value) {
    running = value;
    $('send').hidden = !!value;
    $('stop').hidden = !value;
    for (const button of $('thread').querySelectorAll('.asks')) button.disabled = !!value;
}

// The page may go in the middle of an answer: what came of it is kept as stopped.
function keepSoFar() {
    if (!running || running.edits || running.chat.deleted) return;
    const {chat: asked, m, cut} = running, stopped = {...m, state: 'stopped'};
    const messages = cut && cameToNothing(stopped) ? asked.messages.slice(0, cut.index).concat(cut.messages) : [...asked.messages.slice(0, -1), stopped];
    save({...asked, messages});
}

function save(which) {
    const {kept, bare, dropped} = store.save(which);
    if (dropped.length) tell(`The browser’s storage is full. Older chats were deleted to keep this one: ${dropped.join(', ')}.`);
    if (!kept) tell('This chat could not be kept: the browser’s storage is full or closed.', which.id);
    else if (bare) tell('This chat is kept without its pictures: the browser’s storage has no room for them.', which.id);
    listChats();
}

// ---- chats ----

// Another tab has written this chat: it is shown anew. With something under way here too, there are two from now on; but word of
// what this tab wrote before it was loaded may come late.
function takeFromOtherTab() {
    const theirs = store.chat(chat.id), ours = [...chat.messages, ...(running?.cut?.messages ?? [])].map((m) => m.id);
    if (!theirs) return;
    if (!running && ![...$('thread').querySelectorAll('textarea:enabled')].some((field) => field.value)) {
        chat = theirs;
        showChat();
        scrollToEnd();
    } else if (theirs.messages.some((m) => !ours.includes(m.id))) {
        chat.id = newId();
        tell('This chat went on in another tab: here it is kept as a separate chat.');
    }
}

function openChat(id) {
    if (id === chat.id) {
        showSide(false);
        return focusAsk();
    }
    running?.controller.abort();
    sendWhenRead = false;
    chat = (id && store.chat(id)) || freshChat();
    if (id && chat.id !== id) {
        store.forget(id);
        tell('That chat is no longer there.');
    }
    showChat();
    showSide(false);
    settleAtEnd();
    focusAsk();
}

function deleteChat(id) {
    store.forget(id);
    if (id !== chat.id) return listChats();
    chat.deleted = true;  // an answer that is still coming does not bring it back
    openChat(null);
}

function showSide(shown) {
    $('side').classList.toggle('shown', shown);
    $('side-open').setAttribute('aria-expanded', shown);
    if (shown) $('side-close').focus();
    else if ($('side').contains(document.activeElement)) $('side-open').focus();
}

// ---- the window ----

function scrollToEnd(always) {
    if (always) following = true;
    if (!following) return;
    $('log').scrollTop = $('log').scrollHeight;
    lastTop = $('log').scrollTop;
}

// Messages that were never in sight have a guessed height: when they come into sight the end moves.
function settleAtEnd() {
    let height = 0, calm = 0;
    const look = () => {
        calm = $('log').scrollHeight === height ? calm + 1 : 0;
        height = $('log').scrollHeight;
        scrollToEnd();
        if (following && calm < 10) requestAnimationFrame(look);
    };
    scrollToEnd(true);
    look();
}

// Only going up leaves the end: it may also move away by itself.
function noteScroll() {
    const {scrollTop, scrollHeight, clientHeight} = $('log');
    if (scrollHeight - scrollTop - clientHeight < 60) following = true;
    else if (scrollTop < lastTop) following = false;
    lastTop = scrollTop;
}

// Where a keyboard would jump up over half of the screen, people touch the field themselves.
function focusAsk() {
    if (matchMedia('(pointer: fine)').matches) $('ask').focus();
    else if (document.activeElement === document.body) $('log').focus();
}

function fitAsk() {
    $('ask').style.height = 'auto';
    $('ask').style.height = $('ask').scrollHeight + 'px';
}

function listen(id, event, work) {
    $(id).addEventListener(event, work);
}

listen('composer', 'submit', (e) => { e.preventDefault(); submit(); });
listen('ask', 'keydown', (e) => {
    if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    submit();
});
listen('ask', 'input', fitAsk);
listen('stop', 'click', () => { running?.controller.abort(); focusAsk(); });
listen('log', 'scroll', noteScroll);
listen('attach', 'click', () => $('files').click());
listen('model', 'change', () => { store.saveModel($('model').value); connect(); });
listen('files', 'change', () => { takeFiles($('files').files); $('files').value = ''; });
listen('think', 'click', () => { setThinking(!settings.thinking); focusAsk(); });
listen('theme', 'click', () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]));
listen('find', 'input', listChats);
listen('import', 'click', () => $('import-file').click());
listen('import-file', 'change', () => { if ($('import-file').files.length) importChat($('import-file').files[0]); $('import-file').value = ''; });
listen('new-chat', 'click', () => openChat(null));
listen('export', 'click', exportChat);
listen('side-open', 'click', () => showSide(true));
listen('side-close', 'click', () => showSide(false));
listen('shade', 'click', () => showSide(false));
listen('open-settings', 'click', () => { showSettings(); $('settings').showModal(); });
listen('settings', 'input', readSettings);
listen('settings', 'close', () => { readSettings(); if (field('key').value !== store.key()) { store.saveKey(field('key').value); connect(); } });
listen('settings-done', 'click', (e) => { if (!readSettings()) e.preventDefault(); });
listen('settings-reset', 'click', () => { settings = {thinking: settings.thinking}; store.saveSettings(settings); showSettings(); });

document.addEventListener('keydown', (e) => {
    if (e.key !== 'Escape' || document.querySelector('dialog[open]')) return;
    if ($('side').classList.contains('shown')) showSide(false);
    else running?.controller.abort();
});
document.addEventListener('paste', (e) => {
    if (!e.clipboardData?.files.length || isPastedText(e.clipboardData) || document.querySelector('dialog[open]')) return;
    e.preventDefault();
    takeFiles(e.clipboardData.files);
});
document.addEventListener('dragover', (e) => { e.preventDefault(); $('drop').hidden = false; });
document.addEventListener('dragleave', (e) => { if (!e.relatedTarget) $('drop').hidden = true; });
document.addEventListener('drop', (e) => { e.preventDefault(); $('drop').hidden = true; takeFiles(e.dataTransfer.files); });

$('samples').append(...SAMPLES.map((text) => h('button', {type: 'button', onclick: () => { $('ask').value = text; submit(); }}, text)));
addEventListener('pagehide', () => { keepSoFar(); running?.controller.abort(); });  // or it would count as broken
document.addEventListener('visibilitychange', keepSoFar);  // phones end pages that are out of sight without another word
addEventListener('storage', (e) => {
    if (e.key === PREFIX + 'chat.' + chat.id) takeFromOtherTab();
    if (e.key?.startsWith(PREFIX + 'chat')) listChats();
});

if (store.forTab) $('kept').textContent = 'This browser lets pages store nothing: chats are lost when the tab is closed.';
setTheme(store.theme());
setThinking(settings.thinking);
openChat(store.chats()[0]?.id);
connect();
