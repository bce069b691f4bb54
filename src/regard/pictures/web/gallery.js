// Thumbnails of all heads: ordered and filtered by a statistic, drawn when they come into sight.

const DOTS = 96; // a thumbnail has at most so many dots a side
const inSight = new Set();
const drawn = new WeakMap(); // thumbnail -> what it was drawn for
const sight = new IntersectionObserver(onSight, {rootMargin: '200px'});
let shownOrder = '';

function statisticNow() {
  return page.statistics.find((s) => s.name === settings.statistic) || null;
}

function valueOf(statistic, layer, head) {
  return statistic.values[layer * page.heads + head];
}

function allHeads() {
  const heads = [];
  for (let layer = 0; layer < page.layers; layer++) {
    for (let head = 0; head < page.heads; head++) heads.push({layer, head});
  }
  return heads;
}

// The value below which heads are left out: `least` hundredths of the way to the largest.
function threshold(statistic) {
  const known = statistic.values.filter((v) => v !== null);
  const low = Math.min(...known);
  return low + ((Math.max(...known) - low) * settings.least) / 100;
}

function passes(statistic, {layer, head}) {
  if (!statistic || !settings.least) return true;
  const value = valueOf(statistic, layer, head);
  return value !== null && value >= threshold(statistic) - 1e-12;
}

function ordered(statistic) {
  const heads = allHeads();
  if (!statistic || settings.order === 'layer') return heads;
  const sign = settings.order === 'highest' ? -1 : 1;
  const key = ({layer, head}) => valueOf(statistic, layer, head);
  const known = heads.filter((h) => key(h) !== null);
  return [...known.sort((a, b) => sign * (key(a) - key(b))), ...heads.filter((h) => key(h) === null)];
}

function drawGallery() {
  const statistic = statisticNow();
  const byLayer = !statistic || settings.order === 'layer';
  const order = JSON.stringify([settings.statistic, settings.order, settings.least, settings.sheet]);
  if (order !== shownOrder) {
    shownOrder = order;
    buildThumbs(statistic, byLayer);
    noteFilter(statistic, byLayer);
  }
  markOpen();
}

function buildThumbs(statistic, byLayer) {
  const list = byId('thumbs');
  inSight.clear();
  sight.disconnect();
  list.classList.toggle('by-layer', byLayer);
  list.style.setProperty('--heads', page.heads);
  const heads = ordered(statistic).filter((h) => byLayer || passes(statistic, h));
  const made = heads.map((h) => thumbOf(h, statistic, byLayer));
  list.replaceChildren(...(byLayer ? withNames(made) : made));
  made.forEach((thumb) => sight.observe(thumb));
}

function withNames(thumbs) {
  const corner = element('span', {class: 'axis', 'aria-hidden': 'true'});
  const columns = Array.from({length: page.heads}, (_, h) => element('span', {class: 'axis', 'aria-hidden': 'true'}, `H${h}`));
  const rows = [];
  for (let layer = 0; layer < page.layers; layer++) {
    rows.push(element('span', {class: 'axis', 'aria-hidden': 'true'}, `L${layer}`));
    rows.push(...thumbs.slice(layer * page.heads, (layer + 1) * page.heads));
  }
  return [corner, ...columns, ...rows];
}

function thumbOf({layer, head}, statistic, byLayer) {
  const name = headName(layer, head);
  const value = statistic ? valueOf(statistic, layer, head) : null;
  const says = statistic ? `${statistic.name} ${value === null ? 'none' : short(value)}` : '';
  const thumb = element('button', {
    type: 'button', class: 'thumb', 'data-layer': layer, 'data-head': head, tabindex: '-1',
    'aria-label': `Layer ${layer}, head ${head}${says ? `, ${says}` : ''}`, title: `${name}${says ? `: ${says}` : ''}`,
  });
  thumb.classList.toggle('dim', !passes(statistic, {layer, head}));
  thumb.append(element('canvas', {width: 1, height: 1, 'aria-hidden': 'true'}));
  if (!byLayer) thumb.append(element('span', {class: 'under'}, `${name} `, element('b', {}, value === null ? '–' : short(value))));
  return thumb;
}

function thumbs() {
  return [...byId('thumbs').querySelectorAll('.thumb')];
}

function markOpen() {
  const all = thumbs();
  let open = null;
  for (const thumb of all) {
    const here = Number(thumb.dataset.layer) === settings.layer && Number(thumb.dataset.head) === settings.head;
    thumb.setAttribute('aria-current', String(here));
    thumb.tabIndex = here ? 0 : -1;
    if (here) open = thumb;
  }
  if (!open && all.length) all[0].tabIndex = 0;
}

function noteFilter(statistic, byLayer) {
  const shown = allHeads().filter((h) => passes(statistic, h)).length;
  const all = page.layers * page.heads;
  byId('statistic-about').textContent = statistic ? `${statistic.name}: ${statistic.about}` : '';
  byId('least').disabled = !statistic;
  byId('least-value').textContent = statistic && settings.least ? short(threshold(statistic)) : 'any';
  const left = byLayer ? 'others are dimmed' : 'others are left out';
  byId('thumbs-note').textContent = shown < all ? `${shown} of ${all} heads; ${left}.` : `${all} heads.`;
}

function onSight(entries) {
  for (const entry of entries) {
    if (entry.isIntersecting) inSight.add(entry.target);
    else inSight.delete(entry.target);
  }
  drawInSight();
}

let drawing = false;
let again = false;

// Draws what is in sight and out of date, and lets the browser breathe between.
function drawInSight() {
  again = true;
  if (drawing || !document.documentElement.dataset.shown) return; // the open head goes first
  drawing = true;
  whileBusy(async () => {
    try {
      while (again) {
        again = false;
        await drawStale();
      }
    } finally {
      drawing = false;
    }
  });
}

async function drawStale() {
  const look = lookNow();
  const stale = thumbs().filter((thumb) => inSight.has(thumb) && drawn.get(thumb) !== look);
  let breath = performance.now();
  for (const thumb of stale) {
    const layer = await layerOf(settings.sheet, Number(thumb.dataset.layer));
    if (look !== lookNow()) {
      again = true;
      return;
    }
    drawThumb(thumb, layer);
    drawn.set(thumb, look);
    if (performance.now() - breath > 30) {
      await nextFrame();
      breath = performance.now();
    }
  }
}

// All that a thumbnail's picture depends on.
function lookNow() {
  return JSON.stringify([choiceNow(), settings.scale, settings.sheet, isDark()]);
}

function drawThumb(thumb, layer) {
  const matrix = matrixOf(sheetNow(), layer, Number(thumb.dataset.head), choiceNow(), false);
  paint(thumb.querySelector('canvas'), matrix, sheetNow(), Math.max(1, Math.ceil(matrix.n / DOTS)));
}

function nextFrame() {
  return new Promise((done) => setTimeout(done));
}

function onThumbClick(event) {
  const thumb = event.target.closest('.thumb');
  if (thumb) choose({layer: Number(thumb.dataset.layer), head: Number(thumb.dataset.head)});
}

// Arrows move among the thumbnails as they lie.
function onThumbKey(event) {
  const all = thumbs();
  const at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const across = all.filter((thumb) => thumb.offsetTop === all[0].offsetTop).length;
  const by = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, Home: -at, End: all.length - 1 - at}[event.key];
  if (by === undefined) return;
  event.preventDefault();
  const to = all[at + by];
  if (!to) return;
  all.forEach((thumb) => (thumb.tabIndex = thumb === to ? 0 : -1));
  to.focus();
}
