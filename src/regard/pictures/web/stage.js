// The open head, enlarged: the canvas is as large as what is seen of it, and follows the scroll bars.

const stage = {matrix: null, sheet: null, cell: 1, left: 0, top: 0, row: -1, column: -1, picture: document.createElement('canvas')};
const LARGEST_CELL = 2.6; // in ems
const LABEL_WIDTH = 12; // in ems, at most

function rem() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize);
}

const FAMILY = getComputedStyle(document.body).fontFamily;

function fontOf(size, weight = '') {
  return `${weight} ${size}px ${FAMILY}`.trim();
}

// A label is drawn in two parts, index and token, each in its own direction.
function labelWidth(context, {index, token}) {
  return context.measureText(`${index} `).width + context.measureText(token).width;
}

function drawLabel(context, {index, token}, turned, room) {
  const number = `${index} `;
  const first = context.measureText(number).width;
  const second = Math.min(context.measureText(token).width, room - first);
  context.textAlign = 'left';
  const start = turned ? 0 : -first - second;
  context.fillText(number, start, 0);
  context.fillText(token, start + first, 0, room - first);
}

function drawStage(matrix, sheet) {
  if (stage.row >= matrix.n || stage.column >= matrix.n) Object.assign(stage, {row: -1, column: -1});
  Object.assign(stage, {matrix, sheet});
  stage.labels = matrix.groups.map((group) => labelOf(sheet, group));
  byId('stage').setAttribute('aria-label', `${headName(settings.layer, settings.head)}: ${matrix.n} by ${matrix.n} ${settings.kind}`);
  measureStage();
  const dots = stage.cell * (window.devicePixelRatio || 1);
  stage.size = Math.max(1, Math.ceil(0.999 / dots)); // cells to a dot of the picture
  paint(stage.picture, matrix, sheet, stage.size);
  paintStage();
  showReadout();
}

function measureStage() {
  const box = byId('stage');
  const n = Math.max(stage.matrix.n, 1);
  const size = 0.8 * rem();
  stage.font = size;
  stage.left = stage.top = Math.min(widestLabel(size) + 0.8 * size, LABEL_WIDTH * size);
  const room = box.clientWidth - stage.left - 2;
  const above = box.getBoundingClientRect().top + window.scrollY;
  const high = Math.max(window.innerHeight - above - 2 * rem(), 0.76 * window.innerHeight) - stage.top;
  const fit = Math.min(room / n, high / n, LARGEST_CELL * rem());
  stage.cell = whole(fit * 1.3 ** (printing ? 0 : settings.zoom));
  const side = stage.cell * n;
  byId('stage-spacer').style.width = `${stage.left + side + 1}px`;
  byId('stage-spacer').style.height = `${stage.top + side + 1}px`;
  Object.assign(box.dataset, {cell: stage.cell, left: stage.left, top: stage.top}); // for tests
  box.style.height = `${stage.top + Math.min(side + 1, high) + 2 + (side > room ? 16 : 0)}px`;
}

// A cell of whole dots, where it has one.
function whole(cell) {
  const ratio = window.devicePixelRatio || 1;
  return cell * ratio >= 1 ? Math.floor(cell * ratio) / ratio : cell;
}

// The width of the widest label; measured once for the same labels, which is most of the time.
function widestLabel(size) {
  const look = JSON.stringify([size, settings.sheet, choiceNow()]);
  if (look !== stage.widestFor) Object.assign(stage, {widestFor: look, widest: measureLabels(size)});
  return stage.widest;
}

function measureLabels(size) {
  const context = byId('stage-canvas').getContext('2d');
  context.font = fontOf(size, '600');
  return stage.labels.reduce((most, label) => Math.max(most, labelWidth(context, label)), 0);
}

function paintStage() {
  if (!stage.matrix) return;
  const box = byId('stage');
  const canvas = byId('stage-canvas');
  const ratio = window.devicePixelRatio || 1;
  const width = Math.min(box.clientWidth, parseFloat(byId('stage-spacer').style.width) + 1);
  const height = Math.min(box.clientHeight, parseFloat(byId('stage-spacer').style.height) + 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  paintHead(context, {width, height, x: box.scrollLeft, y: box.scrollTop, marks: true});
}

// Draws what a window of width x height at (x, y) sees of the picture and its labels.
function paintHead(context, view) {
  const {left, top, cell, matrix} = stage;
  context.fillStyle = theme().paper;
  context.fillRect(0, 0, view.width, view.height);
  context.save();
  context.beginPath();
  context.rect(left, top, view.width - left, view.height - top);
  context.clip();
  context.imageSmoothingEnabled = false;
  const side = stage.picture.width * stage.size * cell;
  context.drawImage(stage.picture, left - view.x, top - view.y, side, side);
  if (matrix.causal || matrix.hidden) hatch(context, view);
  if (cell >= 9) grid(context, view);
  if (view.marks) marks(context, view);
  context.restore();
  context.strokeStyle = theme().line;
  context.strokeRect(left - 0.5 - view.x, top - 0.5 - view.y, matrix.n * cell + 1, matrix.n * cell + 1);
  labels(context, view);
}

function visibleRange(from, room) {
  const first = Math.max(0, Math.floor(from / stage.cell));
  return [first, Math.min(stage.matrix.n, Math.ceil((from + room) / stage.cell))];
}

// Hidden pairs: lines over them.
function hatch(context, view) {
  const {left, top, cell, matrix} = stage;
  const [firstRow, lastRow] = visibleRange(view.y, view.height - top);
  const [firstColumn, lastColumn] = visibleRange(view.x, view.width - left);
  context.save();
  context.beginPath();
  for (let i = firstRow; i < lastRow; i++) {
    for (let j = matrix.hidden ? firstColumn : Math.max(i + 1, firstColumn); j < lastColumn; j++) {
      const start = j;
      if (!matrix.hidden) j = lastColumn;
      while (j < lastColumn && isHidden(matrix, i, j)) j++;
      if (j > start) context.rect(left - view.x + start * cell, top - view.y + i * cell, (j - start) * cell, cell);
    }
  }
  context.clip();
  context.strokeStyle = theme().hatch;
  context.lineWidth = 1;
  context.beginPath();
  for (let x = -view.height - ((view.x + view.y) % 7); x < view.width + view.height; x += 7) {
    context.moveTo(left + x, top);
    context.lineTo(left + x - view.height, top + view.height);
  }
  context.stroke();
  context.restore();
}

function grid(context, view) {
  const {left, top, cell} = stage;
  context.strokeStyle = theme().paper;
  context.globalAlpha = 0.55;
  context.beginPath();
  const [firstRow, lastRow] = visibleRange(view.y, view.height - top);
  const [firstColumn, lastColumn] = visibleRange(view.x, view.width - left);
  for (let i = firstRow; i <= lastRow; i++) {
    context.moveTo(left, top - view.y + i * cell);
    context.lineTo(view.width, top - view.y + i * cell);
  }
  for (let j = firstColumn; j <= lastColumn; j++) {
    context.moveTo(left - view.x + j * cell, top);
    context.lineTo(left - view.x + j * cell, view.height);
  }
  context.stroke();
  context.globalAlpha = 1;
}

// The row and the column that are pointed at, and those of the chosen token.
function marks(context, view) {
  const {left, top, cell, row, column, matrix} = stage;
  const side = matrix.n * cell;
  const chosen = rowOfToken(matrix, settings.token);
  context.lineWidth = 1.5;
  const frame = (i, j, wide, tall) => context.strokeRect(left - view.x + j * cell, top - view.y + i * cell, wide, tall);
  context.strokeStyle = theme().accent;
  if (chosen >= 0) {
    frame(chosen, 0, side, cell);
    frame(0, chosen, cell, side);
  }
  context.strokeStyle = theme().ink;
  if (row >= 0) frame(row, 0, side, cell);
  if (column >= 0) frame(0, column, cell, side);
}

function labels(context, view) {
  const {left, top, cell, font} = stage;
  const every = Math.max(1, Math.ceil((1.2 * font) / cell));
  context.textBaseline = 'middle';
  context.direction = 'ltr';
  const [firstRow, lastRow] = visibleRange(view.y, view.height - top);
  const [firstColumn, lastColumn] = visibleRange(view.x, view.width - left);
  const chosen = rowOfToken(stage.matrix, settings.token);
  const marked = (i, at) => i === at || i === chosen;
  sideLabels(context, [firstRow, lastRow], every, (i) => marked(i, stage.row), (i) => [0, top - view.y + (i + 0.5) * cell, 0]);
  sideLabels(context, [firstColumn, lastColumn], every, (j) => marked(j, stage.column), (j) => [left - view.x + (j + 0.5) * cell, 0, 1]);
}

// Every so many labels, then those that are marked, over the others.
function sideLabels(context, [first, last], every, isMarked, placeOf) {
  const all = Array.from({length: Math.max(last - first, 0)}, (_, k) => first + k);
  for (const i of all.filter((k) => k % every === 0)) sideLabel(context, i, placeOf(i), false);
  for (const i of all.filter(isMarked)) sideLabel(context, i, placeOf(i), true);
}

function sideLabel(context, i, [x, y, turned], marked) {
  const {font, left} = stage;
  const middle = turned ? x : y;
  if (middle < left - stage.cell) return;
  context.save();
  context.beginPath();
  if (turned) context.rect(0, 0, 1e5, left - 1);
  else context.rect(0, 0, left - 1, 1e5);
  context.clip();
  context.translate(turned ? x : left - 0.4 * font, turned ? left - 0.4 * font : y);
  if (turned) context.rotate(-Math.PI / 2);
  context.font = fontOf(font, marked ? '600' : '');
  if (marked) {
    context.fillStyle = theme().paper;
    context.fillRect(turned ? 0 : -left, -0.6 * font, left, 1.2 * font);
  }
  context.fillStyle = marked ? theme().ink : theme().faint;
  drawLabel(context, stage.labels[i], turned, left - 0.8 * font);
  context.restore();
}

// Which row and column a point of the window lies on: -1 where it lies on none.
function cellAt(event) {
  const box = byId('stage').getBoundingClientRect();
  const x = event.clientX - box.left - byId('stage').clientLeft;
  const y = event.clientY - box.top - byId('stage').clientTop;
  const n = stage.matrix ? stage.matrix.n : 0;
  const within = (k) => (k >= 0 && k < n ? k : -1);
  const column = x < stage.left ? -1 : within(Math.floor((x - stage.left + byId('stage').scrollLeft) / stage.cell));
  const row = y < stage.top ? -1 : within(Math.floor((y - stage.top + byId('stage').scrollTop) / stage.cell));
  return {row, column};
}

function pointAt(row, column) {
  if (row === stage.row && column === stage.column) return;
  Object.assign(stage, {row, column});
  paintStage();
  showReadout();
}

function onStageMove(event) {
  const {row, column} = cellAt(event);
  pointAt(row, column);
}

// A press on a label chooses its token; one on a cell leaves the mark there.
function onStageClick(event) {
  const {row, column} = cellAt(event);
  if ((row < 0) !== (column < 0)) chooseToken(stage.matrix.groups[Math.max(row, column)][0]);
}

function onStageKey(event) {
  if (!stage.matrix || !stage.matrix.n || event.ctrlKey || event.metaKey || event.altKey) return;
  const last = stage.matrix.n - 1;
  const clamp = (k) => Math.min(Math.max(k, 0), last);
  const row = Math.max(stage.row, 0);
  const column = Math.max(stage.column, 0);
  const fresh = stage.row < 0 || stage.column < 0;
  const moves = {
    ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
    Home: [row, 0], End: [row, last], PageUp: [row - 10, column], PageDown: [row + 10, column],
  };
  if (event.key === 'Enter' && stage.row >= 0) chooseToken(stage.matrix.groups[stage.row][0]);
  else if (event.key in moves) {
    const [i, j] = fresh ? [row, column] : moves[event.key];
    pointAt(clamp(i), clamp(j));
    bringToSight();
  } else return;
  event.preventDefault();
}

function bringToSight() {
  const box = byId('stage');
  const scroll = (name, at, room) => {
    if (at < box[name]) box[name] = at;
    if (at + stage.cell > box[name] + room) box[name] = at + stage.cell - room;
  };
  scroll('scrollTop', stage.row * stage.cell, box.clientHeight - stage.top);
  scroll('scrollLeft', stage.column * stage.cell, box.clientWidth - stage.left);
}

function showReadout() {
  const {matrix, row, column, labels: names} = stage;
  const box = byId('readout');
  if (!matrix || (row < 0 && column < 0) || settings.view !== 'matrix') {
    box.replaceChildren('Point at a cell to read its weight.');
    return;
  }
  const parts = [];
  if (row >= 0) parts.push('query ', tokenElement(names[row].index, names[row].token));
  if (row >= 0 && column >= 0) parts.push(' → ');
  if (column >= 0) parts.push('key ', tokenElement(names[column].index, names[column].token));
  if (row >= 0 && column >= 0) parts.push(' ', ...valueParts(matrix, row, column));
  box.replaceChildren(...parts);
}

function valueParts(matrix, row, column) {
  if (isHidden(matrix, row, column)) return [element('b', {}, 'hidden'), ' the query does not see this key'];
  const k = row * matrix.n + column;
  const {first, last, keys} = rankOf(matrix, row, column);
  const what = settings.kind === 'weights' ? 'weight' : 'contribution';
  const rank = first === last ? `rank ${first} of ${keys}` : `rank ${first} to ${last} of ${keys}`;
  const left = matrix.left[row] > 0 ? ` · left out of this row ${written(matrix.left[row], matrix.leftBound[row])}` : '';
  const exact = matrix.bounds[k] ? '' : ' exact';
  return [element('b', {}, `${what} ${written(matrix.values[k], matrix.bounds[k])}${exact}`), ` · ${rank}${left}`];
}
