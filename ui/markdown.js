// Markdown as nodes. What the model writes is data: every piece of it becomes a text node, addresses are looked at
// before they become links, pictures are not loaded. Whatever is not understood stays as it was written.

const MD_DEPTH = 8;      // quotes in lists in quotes
const MD_REACH = 4000;   // how far a closing sign may be from its opening one

function safeAddress(text) {
    try {
        const url = new URL(text);
        return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
    } catch {
        return null;
    }
}

function link(address, label) {
    return h('a', {href: address, target: '_blank', rel: 'noopener noreferrer'}, label);
}

// ---- inside a line ----

const MARKS = [['**', 'strong'], ['__', 'strong'], ['~~', 'del'], ['*', 'em'], ['_', 'em']];
const WORD = /[\p{L}\p{N}]/u;

function closing(text, mark, from) {
    for (let at = from; ;) {
        at = text.indexOf(mark, at);
        if (at < 0 || at - from > MD_REACH) return -1;
        const inner = text[at - 1], after = text[at + mark.length] || ' ';
        if (at > from && inner !== ' ' && inner !== '\\' && !(mark[0] === '_' && WORD.test(after))
            && !(mark === '*' && (after === '*' || inner === '*')))
            return at;
        at += mark.length;
    }
}

function codeSpan(text, at) {
    const ticks = /^`+/.exec(text.slice(at, at + 16))[0];
    const end = text.indexOf(ticks, at + ticks.length);
    if (end < 0 || end - at > MD_REACH) return null;
    return [h('code', null, text.slice(at + ticks.length, end).trim()), end + ticks.length];
}

// [label](address); a picture is shown as its label.
function linkSpan(text, at, depth) {
    const start = text[at] === '!' ? at + 2 : at + 1;
    const mid = text.indexOf('](', start);
    const end = mid < 0 ? -1 : text.indexOf(')', mid);
    if (end < 0 || end - at > MD_REACH || text.slice(start, mid).includes('[')) return null;
    const address = safeAddress(text.slice(mid + 2, end).trim().split(/\s/)[0]);
    if (!address) return null;
    const label = document.createDocumentFragment();
    inline(label, text.slice(start, mid) || address, depth + 1);
    return [link(address, label), end + 1];
}

function markSpan(text, at, depth) {
    for (const [mark, tag] of MARKS) {
        if (!text.startsWith(mark, at)) continue;
        const from = at + mark.length;
        if (!text[from] || /\s/.test(text[from])) continue;
        if (mark[0] === '_' && at && WORD.test(text[at - 1])) continue;
        const end = closing(text, mark, from);
        if (end < 0) continue;
        const el = h(tag);
        inline(el, text.slice(from, end), depth + 1);
        return [el, end + mark.length];
    }
    return null;
}

function bareAddress(text, at) {
    const found = /^https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]]/.exec(text.slice(at, at + 2000));
    const address = found && safeAddress(found[0]);
    return address ? [link(address, found[0]), at + found[0].length] : null;
}

function span(text, at, depth) {
    const c = text[at];
    if (c === '\\' && /[\\`*_~[\]()#+\-.!|>]/.test(text[at + 1] || '')) return [text[at + 1], at + 2];
    if (c === '`') return codeSpan(text, at);
    if (c === '[' || (c === '!' && text[at + 1] === '[')) return linkSpan(text, at, depth);
    if (c === 'h' && text.startsWith('http', at)) return bareAddress(text, at);
    return '*_~'.includes(c) ? markSpan(text, at, depth) : null;
}

function inline(into, text, depth) {
    let plain = 0;
    const special = /[\\`*_~[!h]/g;
    for (let at = 0; depth < MD_DEPTH;) {
        special.lastIndex = at;
        const found = special.exec(text);
        if (!found) break;
        const got = span(text, found.index, depth);
        if (!got) {
            at = found.index + 1;
            continue;
        }
        into.append(text.slice(plain, found.index), got[0]);
        at = plain = got[1];
    }
    into.append(text.slice(plain));
}

// ---- lines ----

const FENCE = /^ {0,3}(```+(?=[^`]*$)|~~~+)/;  // ```so``` is code inside a line
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}>/;
const ROW = /^\s*\|.*\|\s*$/;

function startsBlock(line) {
    return !line.trim() || FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || RULE.test(line)
        || QUOTE.test(line) || ROW.test(line);
}

// The blank columns that a line begins with, or some of them, and how many signs those are. A tab ends at a multiple of four.
function blanks(line, most = Infinity) {
    let columns = 0, n = 0;
    for (; columns < most && /[ \t]/.test(line[n] || ''); n++) columns += line[n] === '\t' ? 4 - columns % 4 : 1;
    return [columns, n];
}

const indentOf = (line) => blanks(line)[0];

// Of a tab that reaches further, spaces are left.
function outdent(line, most) {
    const [columns, n] = blanks(line, most);
    return ' '.repeat(Math.max(0, columns - most)) + line.slice(n);
}

// Whether the line ends the code that began with these signs.
function closesFence(line, signs) {
    return line.trim().startsWith(signs) && !line.trim().replaceAll(signs[0], '');
}

function fence(into, lines, at) {
    const signs = FENCE.exec(lines[at])[1], indent = indentOf(lines[at]);
    let end = at + 1;
    while (end < lines.length && !closesFence(lines[end], signs)) end++;
    const language = lines[at].trim().slice(signs.length).trim().split(/[\s{]/)[0].toLowerCase();
    const code = lines.slice(at + 1, end).map((l) => outdent(l, indent)).join('\n');
    into.append(h('pre', {tabindex: 0}, h('code', null, ...highlight(code, language))));
    return end + 1;
}

function quote(into, lines, at, depth) {
    let end = at;
    while (end < lines.length && QUOTE.test(lines[end])) end++;
    const el = h('blockquote');
    blocks(el, lines.slice(at, end).map((l) => l.replace(/^ {0,3}> ?/, '')), depth + 1);
    into.append(el);
    return end;
}

// An item owns the lines that are indented below it, and the code that begins in it up to its end.
function itemLines(lines, at) {
    const item = ITEM.exec(lines[at]), indent = indentOf(item[1]);
    const inner = indent + item[0].length - item[1].length - item[3].length;
    const own = [item[3]];
    let signs = FENCE.exec(item[3])?.[1];
    for (at++; at < lines.length; at++) {
        const line = lines[at], text = outdent(line, inner), blank = !line.trim();
        const closes = signs && closesFence(line, signs);
        const gap = blank && (signs || /^\s{2,}\S/.test(lines[at + 1] || ''));
        if (!closes && !gap && (blank || indentOf(line) <= indent) && startsBlock(line)) break;
        own.push(text);
        signs = closes ? null : signs || FENCE.exec(text)?.[1];
    }
    return own;
}

function list(into, lines, at, depth) {
    const first = ITEM.exec(lines[at]);
    const ordered = /\d/.test(first[2]), indent = indentOf(first[1]);
    const el = h(ordered ? 'ol' : 'ul', ordered ? {start: parseInt(first[2], 10)} : null);
    while (at < lines.length) {
        const item = ITEM.exec(lines[at]);
        if (!item || indentOf(item[1]) < indent || /\d/.test(item[2]) !== ordered) break;
        const own = itemLines(lines, at), li = h('li');
        blocks(li, own, depth + 1, true);
        el.append(li);
        at += own.length;
        if (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] || '')) at++;
    }
    into.append(el);
    return at;
}

function cells(line) {
    return line.trim().replace(/^\||\|$/g, '').split('|').map((c) => c.trim());
}

function table(into, lines, at, depth) {
    const el = h('table');
    const row = (line, tag) => el.append(h('tr', null, ...cells(line).map((c) => {
        const cell = h(tag);
        inline(cell, c, depth);
        return cell;
    })));
    row(lines[at], 'th');
    for (at += 2; at < lines.length && ROW.test(lines[at]); at++) row(lines[at], 'td');
    into.append(h('div', {class: 'table'}, el));
    return at;
}

function paragraph(into, lines, at, depth, tight) {
    let end = at + 1;
    while (end < lines.length && !startsBlock(lines[end])) end++;
    const el = tight ? into : h('p');
    lines.slice(at, end).forEach((line, i) => {
        if (i) el.append(h('br'));
        inline(el, line.trim(), depth);
    });
    if (!tight) into.append(el);
    return end;
}

function blocks(into, lines, depth, tight) {
    for (let at = 0; at < lines.length;) {
        const line = lines[at], heading = HEADING.exec(line);
        const nests = depth < MD_DEPTH;
        if (!line.trim()) at++;
        else if (FENCE.test(line)) at = fence(into, lines, at);
        else if (heading) {
            const el = h('h' + Math.min(4, heading[1].length));
            inline(el, heading[2], depth);
            into.append(el);
            at++;
        } else if (RULE.test(line)) {
            into.append(h('hr'));
            at++;
        } else if (nests && QUOTE.test(line)) at = quote(into, lines, at, depth);
        else if (nests && ITEM.test(line)) at = list(into, lines, at, depth);
        else if (ROW.test(line) && /^[\s|:-]+$/.test(lines[at + 1] || '') && ROW.test(lines[at + 1]))
            at = table(into, lines, at, depth);
        else at = paragraph(into, lines, at, depth, tight);
    }
}

function markdown(into, text) {
    into.replaceChildren();
    blocks(into, text.replace(/\r\n?/g, '\n').split('\n'), 0, false);
}
