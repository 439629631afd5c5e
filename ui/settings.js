// What answers are asked for with, the dialog in which that is chosen, and the theme.

const NUMBERS = {seed: [-Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, true], max_tokens: [1, 1e6, true], steps: [1, 1e5, true],
    t_min: [0.001, 100], t_max: [0.001, 100], entropy_bound: [0, 1e6], settled_steps: [1, 1e5, true]};

let settings = store.settings();

const field = (name) => $('set-' + name);

function fillPlaceholders() {
    const p = server.default_generation_settings?.params || {};
    const own = {max_tokens: p.max_tokens, steps: p.n_denoise_steps, t_min: p.temperature_min, t_max: p.temperature_max, entropy_bound: p.entropy_bound};
    for (const [name, value] of Object.entries(own)) field(name).placeholder = value ?? '';
}

function readNumber(name) {
    const text = field(name).value.trim(), [low, high, whole] = NUMBERS[name];
    const value = Number(text);
    const ok = !text || (value >= low && value <= high && (!whole || Number.isInteger(value)));
    field(name).setCustomValidity(ok ? '' : `${whole ? 'A whole number' : 'A number'} from ${low} to ${high}`);
    return text && ok ? value : null;
}

function readTools() {
    const text = field('tools').value.trim();
    $('tools-error').textContent = '';
    if (!text) return null;
    try {
        const value = JSON.parse(text);
        const tools = (Array.isArray(value) ? value : [value]).map((t) => (t.type ? t : {type: 'function', function: t}));
        if (tools.every((t) => typeof t.function?.name === 'string')) return tools;
        $('tools-error').textContent = 'Each tool needs a function with a name.';
    } catch (e) {
        $('tools-error').textContent = 'This is not JSON: ' + e.message;
    }
    return undefined;
}

// What answers are held to; undefined: what stands there is no schema.
function readSchema() {
    const text = field('schema').value.trim();
    $('schema-error').textContent = '';
    if (!text) return null;
    try {
        const schema = JSON.parse(text);
        if (schema && typeof schema === 'object' && !Array.isArray(schema)) return schema;
        $('schema-error').textContent = 'A schema is a JSON object.';
    } catch (e) {
        $('schema-error').textContent = 'This is not JSON: ' + e.message;
    }
    return undefined;
}

function readSettings() {
    const next = {system: field('system').value, toolsText: field('tools').value, schemaText: field('schema').value, settled: field('settled').checked, thinking: settings.thinking};
    for (const name of Object.keys(NUMBERS)) next[name] = readNumber(name);
    const tools = readTools();
    const schema = readSchema();
    next.tools = tools === undefined ? null : tools;
    next.schema = schema ?? null;
    settings = next;
    store.saveSettings(settings);
    return tools !== undefined && schema !== undefined;
}

function showSettings() {
    field('system').value = settings.system || '';
    field('tools').value = settings.toolsText || '';
    field('schema').value = settings.schemaText || '';
    field('settled').checked = !!settings.settled;
    for (const name of Object.keys(NUMBERS)) field(name).value = settings[name] ?? '';
    field('key').value = store.key();
    readTools();
    readSchema();
}

function setThinking(on) {
    settings = {...settings, thinking: on};
    $('think').setAttribute('aria-pressed', !!on);
    store.saveSettings(settings);
}

const THEMES = ['system', 'light', 'dark'];

function setTheme(name) {
    const theme = THEMES.includes(name) ? name : 'system';
    document.documentElement.dataset.theme = theme;
    $('theme').textContent = `Theme: ${theme}`;
    store.saveTheme(theme);
}
