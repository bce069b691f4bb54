// What is chosen, in one record: read from the address, changed by `choose`, shown by `render`.

const DEFAULTS = {
  layer: page.open[0], head: page.open[1], sheet: 0, view: 'matrix', kind: 'weights', scale: 'sqrt',
  special: true, first: true, words: false, renormalise: false, statistic: '', order: 'layer', least: 0,
  links: 0, token: page.token, theme: 'system', size: 'normal', zoom: 0,
};
const CHOICES = {
  view: ['matrix', 'links'], kind: ['weights', 'contributions'], scale: ['linear', 'sqrt', 'log', 'row'],
  order: ['layer', 'highest', 'lowest'], theme: ['system', 'light', 'dark'], size: ['normal', 'projector'],
  statistic: ['', ...page.statistics.map((s) => s.name)],
};
const LIMITS = {
  layer: [0, page.layers - 1], head: [0, page.heads - 1], sheet: [0, page.sheets.length - 1],
  least: [0, 100], links: [0, 5000], token: [-1, page.tokens - 1], zoom: [-20, 20],
};
const settings = {...DEFAULTS};
let printing = false;
let waiting = false;

function byId(name) {
  return document.getElementById(name);
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A token in the direction that its own letters have, after its index.
function tokenElement(index, token) {
  return element('span', {class: 'token-name'}, element('small', {}, `${index} `), element('bdi', {}, token));
}

function sheetNow() {
  return page.sheets[settings.sheet];
}

function headName(layer, head) {
  return `L${layer}H${head}`;
}

// What decides the numbers of a picture, beside its head.
function choiceNow() {
  const {kind, special, first, words, renormalise} = settings;
  return {kind, special, first, words, renormalise};
}

// `text` as the setting's kind of value, or undefined where it is none.
function parsed(name, text) {
  if (name in CHOICES) return CHOICES[name].includes(text) ? text : undefined;
  if (typeof DEFAULTS[name] === 'boolean') return {1: true, 0: false}[text];
  const number = Number(text);
  const [low, high] = LIMITS[name];
  return text !== '' && Number.isInteger(number) && number >= low && number <= high ? number : undefined;
}

function choose(changes) {
  Object.assign(settings, changes);
  if (!sheetNow().contributions) settings.kind = 'weights';
  writeAddress();
  renderSoon();
}

function renderSoon() {
  if (waiting) return;
  waiting = true;
  whileBusy(async () => {
    await new Promise(requestAnimationFrame);
    waiting = false;
    await render();
  });
}

let pending = 0;

// The page says that it is busy until all work is done.
async function whileBusy(work) {
  const say = (by) => {
    pending += by;
    document.querySelector('main').setAttribute('aria-busy', String(pending > 0));
  };
  say(1);
  try {
    await work();
  } finally {
    say(-1);
  }
}

function asText(value) {
  return String(typeof value === 'boolean' ? Number(value) : value);
}

// "#L3H1", and after it what differs from the page's own choice: "#L3H1&view=links&token=9".
function writeAddress() {
  const rest = Object.keys(DEFAULTS)
    .filter((name) => !['layer', 'head'].includes(name) && settings[name] !== DEFAULTS[name])
    .map((name) => `&${name}=${encodeURIComponent(asText(settings[name]))}`);
  const address = `#${headName(settings.layer, settings.head)}${rest.join('')}`;
  if (address !== location.hash) history.replaceState(null, '', address);
}

function readAddress() {
  const [name, ...rest] = location.hash.slice(1).split('&');
  const found = {};
  const match = /^L(\d+)H(\d+)$/.exec(name);
  if (match) Object.assign(found, {layer: parsed('layer', match[1]), head: parsed('head', match[2])});
  for (const part of rest) {
    const [key, text = ''] = part.split('=');
    if (Object.keys(DEFAULTS).includes(key)) found[key] = parsed(key, safelyDecoded(text));
  }
  for (const key of Object.keys(found)) if (found[key] === undefined) delete found[key];
  choose({...DEFAULTS, ...found});
}

function safelyDecoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}
