// Wires the controls, and renders everything from the settings.

const ACTIONS = {
  print: () => window.print(),
  help: () => byId('help').showModal(),
  previous: () => step(-1),
  next: () => step(1),
  smaller: () => choose({zoom: Math.max(settings.zoom - 1, LIMITS.zoom[0])}),
  larger: () => choose({zoom: Math.min(settings.zoom + 1, LIMITS.zoom[1])}),
  fit: () => choose({zoom: 0}),
  csv: copyCsv,
  png: savePng,
  svg: saveSvg,
  forget: () => choose({token: -1}),
};
const KEYS = {'[': 'previous', ']': 'next', '+': 'larger', '=': 'larger', '-': 'smaller', 0: 'fit'};

// The head before or after the open one, in the order of the thumbnails.
function step(by) {
  const statistic = statisticNow();
  const heads = ordered(statistic).filter((h) => passes(statistic, h));
  if (!heads.length) return;
  const at = heads.findIndex((h) => h.layer === settings.layer && h.head === settings.head);
  choose(heads[(at + by + heads.length) % heads.length]);
}

async function render() {
  document.documentElement.dataset.size = settings.size;
  showControls();
  drawText();
  drawGallery();
  const wanted = JSON.stringify(settings);
  const layer = await layerOf(settings.sheet, settings.layer);
  if (wanted !== JSON.stringify(settings)) return; // another render is under way
  showHead(matrixOf(sheetNow(), layer, settings.head, choiceNow()));
  await drawToken();
}

function showHead(matrix) {
  const sheet = sheetNow();
  document.documentElement.dataset.theme = printing ? 'light' : settings.theme;
  drawLegend(sheet);
  const links = settings.view === 'links';
  byId('head-name').textContent = headName(settings.layer, settings.head);
  byId('head-statistics').textContent = headStatistics();
  byId('stage').hidden = byId('zoom').hidden = byId('stage-help').hidden = links;
  byId('links').hidden = byId('links-count').hidden = byId('save-svg').hidden = !links;
  stage.matrix = matrix;
  if (links) drawLinks(matrix, sheet);
  else drawStage(matrix, sheet);
  shadeText(matrix);
  restoreFocus();
  byId('status').textContent = statusOf(matrix, sheet);
  document.documentElement.dataset.shown = headName(settings.layer, settings.head); // drawn by now
  drawInSight();
}

function headStatistics() {
  const values = page.statistics.map((s) => [s.name, valueOf(s, settings.layer, settings.head)]);
  return values.filter(([, value]) => value !== null).map(([name, value]) => `${name} ${short(value)}`).join(' · ');
}

function statusOf(matrix, sheet) {
  const out = leftOutNames(sheet);
  const renormalised = settings.renormalise ? 'Rows are renormalised to sum to 1.' : 'Rows are not renormalised.';
  const name = `${headName(settings.layer, settings.head)}, ${scaleName(sheet)}.`;
  if (!out.length) return `${name} No token is left out. ${renormalised}`;
  const left = leftOut(matrix);
  const share = left ? percent(left) : 'nothing';
  return `${name} Left out: ${out.join(' and ')}, with ${share} of the ${settings.kind === 'weights' ? 'weight' : 'contributions'} of the rows shown. ${renormalised}`;
}

function percent({share, bound}) {
  return bound > 5e-6 ? `${written(100 * share, 100 * bound)} %` : `${(100 * share).toFixed(1)} %`;
}

function leftOutNames(sheet) {
  const names = [];
  const special = sheet.special.filter(Boolean).length;
  if (!settings.special && special) names.push(`${special} special ${special > 1 ? 'tokens' : 'token'}`);
  if (!settings.first && sheet.first && (settings.special || !sheet.special[0])) names.push('the first token');
  return names;
}

function showControls() {
  for (const input of document.querySelectorAll('[data-setting]')) {
    const value = settings[input.dataset.setting];
    if (input.type === 'radio') input.checked = input.value === asText(value);
    else if (input.type === 'checkbox') input.checked = value;
    else if (input.dataset.setting !== 'links') input.value = value;
  }
  const sheet = sheetNow();
  disable('kind', !sheet.contributions, 'the norms that contributions need are not known here');
  disable('special', !sheet.special.some(Boolean), 'no token here is special');
  disable('first', !sheet.first, 'the first token has no row of its own here');
  disable('words', !sheet.words.some((word, i) => i && word === sheet.words[i - 1]), 'no word here has several pieces');
}

function disable(name, off, why) {
  for (const input of document.querySelectorAll(`[data-setting="${name}"]`)) {
    input.disabled = off;
    input.parentElement.title = off ? why : '';
  }
}

function onChange(event) {
  const input = event.target;
  const name = input.dataset.setting;
  if (!name) return;
  const text = input.type === 'checkbox' ? asText(input.checked) : input.value;
  const changes = {[name]: parsed(name, text)};
  if (name === 'statistic' && changes.statistic && settings.order === 'layer') changes.order = 'highest';
  if (name === 'sheet') changes.token = -1;
  choose(changes);
}

function onAction(event) {
  const button = event.target.closest('[data-action]');
  if (button) ACTIONS[button.dataset.action]();
}

function onKey(event) {
  const typing = event.target.closest && event.target.closest('input, select, textarea, dialog');
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  ACTIONS[KEYS[event.key]]();
}

function describe() {
  document.title = `${page.title} – regard`;
  byId('title').textContent = page.title;
  byId('about').textContent = `${page.layers} layers of ${page.heads} heads, ${page.tokens} tokens${withoutHeads()} · regard ${page.version}`;
  byId('statistics').append(element('option', {value: ''}, 'none'), ...page.statistics.map((s) => element('option', {value: s.name}, s.name)));
  byId('exactness').textContent = 'Each weight w is stored in 8 bits as its square root, rounded to a step of 1/255: it is known within '
    + '√w/255, shown as “≈ 0.0123 ± 0.0005”. The strongest of each row is stored exactly, in 32 bits, and so is the sum of each row. '
    + 'A rank is given as a range where these bounds leave it open.';
  if (page.sheets.length < 2) return;
  byId('sheet-choice').hidden = false;
  page.sheets.forEach((sheet, s) => {
    const input = element('input', {type: 'radio', name: 'sheet', value: s, 'data-setting': 'sheet'});
    byId('sheet-choice').append(element('label', {}, input, element('span', {}, sheet.name === 'pooled' ? 'whole text, pooled' : `tokens ${sheet.from} to ${sheet.to - 1}, exactly`)));
  });
}

function withoutHeads() {
  if (!page.without.length) return '';
  return `, computed without ${page.without.map(([layer, head]) => headName(layer, head)).join(', ')}`;
}

function listen() {
  document.addEventListener('change', onChange);
  document.addEventListener('input', (event) => event.target.type === 'range' && onChange(event));
  document.addEventListener('click', onAction);
  document.addEventListener('keydown', onKey);
  byId('tokens').addEventListener('click', onTextClick);
  byId('thumbs').addEventListener('click', onThumbClick);
  byId('thumbs').addEventListener('keydown', onThumbKey);
  byId('stage').addEventListener('pointermove', onStageMove);
  byId('stage').addEventListener('pointerdown', onStageMove);
  byId('stage').addEventListener('click', onStageClick);
  byId('stage').addEventListener('keydown', onStageKey);
  byId('stage').addEventListener('scroll', paintStage);
  byId('links').addEventListener('click', onLinksClick);
  byId('links').addEventListener('keydown', onLinksKey);
  byId('token').addEventListener('click', onTokenClick);
  for (const side of ['attends', 'attended']) byId(`${side}-canvas`).addEventListener('pointermove', onStripMove);
  window.addEventListener('hashchange', readAddress);
  window.addEventListener('resize', renderSoon);
  window.addEventListener('beforeprint', beforePrint);
  window.addEventListener('afterprint', afterPrint);
  darkSystem.addEventListener('change', renderSoon);
}

function fail(error) {
  byId('failure').hidden = false;
  byId('failure').textContent = `This page could not be drawn: ${error.message || error}`;
}

function start() {
  if (typeof DecompressionStream === 'undefined') {
    fail('the browser has no DecompressionStream. Chrome and Edge 80, Firefox 113, Safari 16.4 and later have it.');
    return;
  }
  window.addEventListener('unhandledrejection', (event) => fail(event.reason));
  window.addEventListener('error', (event) => fail(event.error || event.message));
  describe();
  listen();
  readAddress();
}

start();
