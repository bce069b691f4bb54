// The chosen token over all heads: what it attends to, and who attends to it.

const SHOWN = 8; // lines of a table
let tokenLook = '';
let tokenFound = null;

async function drawToken() {
  const {token} = settings;
  byId('token').hidden = token < 0 || token >= sheetNow().n;
  const look = JSON.stringify([token, choiceNow(), settings.scale, settings.sheet, isDark()]);
  if (byId('token').hidden || look === tokenLook) return;
  tokenLook = look;
  const sheet = sheetNow();
  const found = await overAllHeads(sheet, token, () => look === tokenLook);
  if (!found) return;
  tokenFound = found;
  showToken(sheet, found);
}

// Row and column of the token in each head, and the same of no head where it is left out.
async function overAllHeads(sheet, token, stillWanted) {
  const choice = choiceNow();
  const groups = groupsOf(sheet, choice);
  const place = groups.findIndex((group) => group.includes(token));
  const found = {groups, place, attends: [], attended: [], heads: allHeads()};
  if (place < 0) return found;
  let breath = performance.now();
  for (const {layer, head} of found.heads) {
    const matrix = matrixOf(sheet, await layerOf(settings.sheet, layer), head, choice);
    if (!stillWanted()) return null;
    found.attends.push(lineOf(matrix, place, false));
    found.attended.push(lineOf(matrix, place, true));
    if (performance.now() - breath > 30) {
      await nextFrame();
      breath = performance.now();
    }
  }
  return found;
}

// Row `place`, or its column: values, bounds, and the steps of the ramp.
function lineOf(matrix, place, asKey) {
  const shade = shader(sheetNow());
  const n = matrix.n;
  const line = {values: new Float32Array(n), bounds: new Float32Array(n), steps: new Int16Array(n)};
  for (let k = 0; k < n; k++) {
    const [i, j] = asKey ? [k, place] : [place, k];
    line.values[k] = matrix.values[i * n + j];
    line.bounds[k] = matrix.bounds[i * n + j];
    line.steps[k] = isHidden(matrix, i, j) ? HIDDEN : shade(line.values[k], matrix.largest[i]);
  }
  return line;
}

function showToken(sheet, found) {
  const out = found.place < 0;
  const label = out ? {index: sheet.starts[settings.token], token: sheet.tokens[settings.token]} : labelOf(sheet, found.groups[found.place]);
  byId('token-name').replaceChildren(tokenElement(label.index, label.token), ' in all heads');
  byId('token-note').textContent = out
    ? 'This token is left out at the moment.'
    : 'A line of a picture is a head, from layer 0 down; a column is a token. Press a line to open its head. '
      + 'The mean over heads hides what single heads do: the head that gives most is named beside it.';
  for (const side of ['attends', 'attended']) {
    byId(`${side}-canvas`).hidden = byId(`${side}-table`).hidden = byId(`${side}-name`).hidden = out;
    if (!out) showSide(sheet, found, side);
  }
}

function showSide(sheet, found, side) {
  const lines = found[side];
  const n = found.groups.length;
  const steps = new Int16Array(lines.length * n);
  lines.forEach((line, h) => steps.set(line.steps, h * n));
  const canvas = byId(`${side}-canvas`);
  paintSteps(canvas, steps, n, lines.length);
  canvas.style.height = `${Math.max(2, Math.min(10, 220 / lines.length)) * lines.length}px`;
  canvas.setAttribute('aria-label', `${lines.length} heads by ${n} tokens; the table has the strongest`);
  const rows = strongestOf(lines, n).map((best) => tokenRow(sheet, found, lines, best));
  const head = element('tr', {}, ...['token', 'most', 'head', 'mean ≈'].map((name) => element('th', {scope: 'col'}, name)));
  byId(`${side}-table`).replaceChildren(element('thead', {}, head), element('tbody', {}, ...rows));
}

// Of each token the head that gives most and the mean over heads; the largest first.
function strongestOf(lines, n) {
  const each = Array.from({length: n}, (_, k) => {
    let head = 0;
    let sum = 0;
    lines.forEach((line, h) => {
      sum += line.values[k];
      if (line.values[k] > lines[head].values[k]) head = h;
    });
    return {k, head, mean: sum / lines.length, most: lines[head].values[k]};
  });
  return each.filter((one) => one.most > 0).sort((a, b) => b.most - a.most).slice(0, SHOWN);
}

function tokenRow(sheet, found, lines, {k, head, mean}) {
  const label = labelOf(sheet, found.groups[k]);
  const {layer, head: which} = found.heads[head];
  const open = element('button', {type: 'button', class: 'plain', 'data-open': head}, headName(layer, which));
  return element('tr', {},
    element('td', {}, tokenElement(label.index, label.token)),
    element('td', {class: 'number'}, written(lines[head].values[k], lines[head].bounds[k])),
    element('td', {}, open),
    element('td', {class: 'number'}, mean.toFixed(4)));
}

function stripCell(event) {
  const box = event.target.getBoundingClientRect();
  const n = tokenFound.groups.length;
  const part = (at, size, count) => Math.min(count - 1, Math.max(0, Math.floor((at / size) * count)));
  return {
    head: part(event.clientY - box.top, box.height, tokenFound.heads.length),
    k: part(event.clientX - box.left, box.width, n),
  };
}

function onStripMove(event) {
  const side = event.target.id === 'attends-canvas' ? 'attends' : 'attended';
  const {head, k} = stripCell(event);
  const line = tokenFound[side][head];
  const {layer, head: which} = tokenFound.heads[head];
  const label = labelOf(sheetNow(), tokenFound.groups[k]);
  const value = line.steps[k] === HIDDEN ? 'hidden' : written(line.values[k], line.bounds[k]);
  event.target.title = `${headName(layer, which)}: ${label.index} ${label.token} ${value}`;
}

function onTokenClick(event) {
  const open = event.target.closest('[data-open]');
  if (open) choose(tokenFound.heads[Number(open.dataset.open)]);
  else if (event.target.classList.contains('strip')) choose(tokenFound.heads[stripCell(event).head]);
}
