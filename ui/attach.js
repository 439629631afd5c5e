// What goes with a message: pictures, and the text of files.

const MAX_PICTURES = 16, PICTURE_SIDE = 1536, PICTURE_BYTES = 2 << 20;
const MAX_FILES = 8, FILE_BYTES = 256 << 10;

let pictures = [];    // data URLs that go with the next message
let texts = [];       // and files: {name, text}
let reading = 0;      // batches that are not read yet
let sendWhenRead = false;

function showPictures() {
    const item = (list, i, name, look) => h('li', null, look,
        h('button', {type: 'button', 'aria-label': `Remove ${name}`, onclick: () => { list.splice(i, 1); showPictures(); }}, '✕'));
    $('pictures').replaceChildren(
        ...pictures.map((src, i) => item(pictures, i, `picture ${i + 1}`, h('img', {src, alt: `Picture ${i + 1}`}))),
        ...texts.map((f, i) => item(texts, i, f.name, h('span', {class: 'file'}, f.name))));
}

function readAsUrl(blob) {
    return new Promise((done, fail) => {
        const reader = new FileReader();
        reader.onload = () => done(reader.result);
        reader.onerror = () => fail(reader.error);
        reader.readAsDataURL(blob);
    });
}

// Larger pictures than the model looks at are made smaller here: less to send, less to keep.
async function pictureUrl(file) {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, PICTURE_SIDE / Math.max(bitmap.width, bitmap.height));
    const known = /^image\/(png|jpeg|webp|gif)$/.test(file.type);
    if (scale === 1 && known && file.size <= PICTURE_BYTES) return readAsUrl(file);
    const canvas = h('canvas');
    canvas.width = Math.max(1, Math.round(bitmap.width * scale));
    canvas.height = Math.max(1, Math.round(bitmap.height * scale));
    const paint = canvas.getContext('2d');
    paint.fillStyle = '#fff';
    paint.fillRect(0, 0, canvas.width, canvas.height);
    paint.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL('image/jpeg', 0.9);
}

async function takePicture(file) {
    if (server.modalities && !server.modalities.vision) return tell('This model does not see pictures.');
    if (pictures.length >= MAX_PICTURES) return tell(`A message has at most ${MAX_PICTURES} pictures: some were left out.`);
    try {
        const url = await pictureUrl(file);
        pictures.push(url);
    } catch {
        sendWhenRead = false;
        tell(`${file.name || 'This'} is not a picture that can be read.`);
    }
}

async function takeText(file) {
    const name = file.name || 'text';
    if (file.type === 'application/pdf' || /\.pdf$/i.test(name)) return tell(`${name}: PDF files cannot be read here. Their text can be copied and pasted.`);
    if (texts.length >= MAX_FILES) return tell(`A message has at most ${MAX_FILES} files: some were left out.`);
    if (file.size > FILE_BYTES) return tell(`${name} is too long: at most ${FILE_BYTES >> 10} kB of text can go with a message.`);
    try {
        const text = new TextDecoder('utf-8', {fatal: true}).decode(await file.arrayBuffer());
        if (text.includes('\0')) throw new TypeError('not text');
        texts.push({name, text});
    } catch {
        sendWhenRead = false;
        tell(`${name} is neither a picture nor text.`);
    }
}

async function takeFiles(files) {
    if (!files.length) return;
    reading++;
    for (const file of [...files]) await (file.type.startsWith('image/') && file.type !== 'image/svg+xml' ? takePicture(file) : takeText(file));
    reading--;
    showPictures();
    if (sendWhenRead) submit();
    else focusAsk();
}

// What the model reads: each file under its name, between more ticks than it has in it, and then what was typed.
function withFiles(m) {
    const parts = (m.files ?? []).map((f) => {
        const ticks = '`'.repeat(Math.max(3, ...[...f.text.matchAll(/`+/g)].map((t) => t[0].length + 1)));
        return `${f.name}:\n${ticks}\n${f.text.replace(/\n$/, '')}\n${ticks}`;
    });
    return [...parts, ...(m.text ? [m.text] : [])].join('\n\n');
}

// Office programs add a picture of the text; file managers add the names of the files.
function isPastedText(data) {
    const names = [...data.files].map((f) => f.name);
    return data.getData('text/plain').split(/[\r\n]+/).some((line) => line && !names.includes(line));
}

// ---- pictures to try ----

const SCENES = [
    {name: 'a red circle', draw: (g) => { g.fillStyle = 'rgb(214,28,36)'; g.arc(72, 72, 36, 0, 7); }},
    {name: 'a blue square', draw: (g) => { g.fillStyle = 'rgb(36,72,214)'; g.rect(40, 40, 64, 64); }},
    {name: 'a green triangle', draw: (g) => { g.fillStyle = 'rgb(32,150,60)'; g.moveTo(72, 34); g.lineTo(110, 104); g.lineTo(34, 104); }},
];

function scenePicture(scene) {
    const canvas = h('canvas', {width: 144, height: 144}), g = canvas.getContext('2d');
    g.fillStyle = 'rgb(250,250,250)';
    g.fillRect(0, 0, 144, 144);
    g.beginPath();
    scene.draw(g);
    g.fill();
    return canvas.toDataURL('image/png');
}

function showScenes() {
    $('scenes').replaceChildren(...(server.modalities?.vision ? SCENES : []).map((scene) => {
        const src = scenePicture(scene);
        const show = () => {
            pictures = [src];
            $('ask').value = 'What is in the picture?';
            submit();
        };
        return h('button', {type: 'button', 'aria-label': `Ask about ${scene.name}`, onclick: show}, h('img', {src, alt: ''}));
    }));
}
