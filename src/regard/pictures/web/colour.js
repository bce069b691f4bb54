// Colours and scales. The ramp takes equal steps of lightness, so that it reads without hue.

const SCALES = {
  linear: {name: 'linear', place: (t) => t, ticks: [0, 0.25, 0.5, 0.75, 1]},
  sqrt: {name: 'square root', place: Math.sqrt, ticks: [0, 0.05, 0.25, 0.5, 1]},
  log: {name: 'logarithmic', place: (t) => (t > 1e-4 ? 1 + Math.log10(t) / 4 : 0), ticks: [1e-4, 1e-3, 0.01, 0.1, 1]},
  row: {name: 'row maximum', place: (t) => t, ticks: [0, 0.5, 1]},
};

const darkSystem = window.matchMedia('(prefers-color-scheme: dark)');

function isDark() {
  if (printing) return false;
  return settings.theme === 'dark' || (settings.theme === 'system' && darkSystem.matches);
}

function theme() {
  return page.themes[isDark() ? 'dark' : 'light'];
}

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// 256 steps along the ramp, each as [r, g, b].
function rampOf(colours) {
  const stops = colours.ramp.map(rgb);
  return Array.from({length: 256}, (_, step) => {
    const at = (step / 255) * (stops.length - 1);
    const k = Math.min(Math.floor(at), stops.length - 2);
    return stops[k].map((c, i) => Math.round(c + (stops[k + 1][i] - c) * (at - k)));
  });
}

const ramps = {light: rampOf(page.themes.light), dark: rampOf(page.themes.dark)};

function ramp() {
  return ramps[isDark() ? 'dark' : 'light'];
}

// The value that has the last colour: 1, or the largest contribution of all heads.
function rangeOf(sheet) {
  const bare = settings.kind === 'weights' || settings.renormalise;
  return bare ? 1 : sheet.largestContribution;
}

// The value that has the last colour in a row whose largest is `largest`.
function rowRange(sheet, largest) {
  return settings.scale === 'row' ? largest || 1 : rangeOf(sheet);
}

// A function from a value, and the largest of its row, to a step of the ramp.
function shader(sheet) {
  const {place} = SCALES[settings.scale];
  return (value, largest) => Math.round(255 * place(Math.min(value / rowRange(sheet, largest), 1)));
}

const HIDDEN = -1;

// Steps of the ramp for blocks of `size` x `size` cells: the largest of each; HIDDEN where no query
// of the block sees a key of it.
function stepsOf(matrix, sheet, size) {
  const {place} = SCALES[settings.scale];
  const width = Math.ceil(matrix.n / size);
  const parts = new Float32Array(width * width).fill(HIDDEN);
  for (let i = 0; i < matrix.n; i++) poolRow(matrix, i, 1 / rowRange(sheet, matrix.largest[i]), size, parts, Math.floor(i / size) * width);
  const steps = new Int16Array(parts.length);
  for (let k = 0; k < steps.length; k++) steps[k] = parts[k] < 0 ? HIDDEN : Math.round(255 * place(Math.min(parts[k], 1)));
  return {steps, width};
}

// Row i, times `by`, into the largest of each block.
function poolRow(matrix, i, by, size, parts, to) {
  const {n, values} = matrix;
  const seen = matrix.causal ? i + 1 : n;
  for (let j = 0; j < seen; j++) {
    if (matrix.hidden && isHidden(matrix, i, j)) continue;
    const at = to + Math.floor(j / size);
    const part = values[i * n + j] * by;
    if (part > parts[at]) parts[at] = part;
  }
}

// Puts a head on a canvas, one dot for each block.
function paint(canvas, matrix, sheet, size) {
  const {steps, width} = stepsOf(matrix, sheet, size);
  paintSteps(canvas, steps, width, width);
}

function paintSteps(canvas, steps, width, height) {
  canvas.width = Math.max(width, 1);
  canvas.height = Math.max(height, 1);
  const context = canvas.getContext('2d');
  const image = context.createImageData(canvas.width, canvas.height);
  const dots = new Uint32Array(image.data.buffer);
  const colours = Uint32Array.from(ramp(), packed);
  const hidden = packed(rgb(theme().hidden));
  for (let k = 0; k < steps.length; k++) dots[k] = steps[k] === HIDDEN ? hidden : colours[steps[k]];
  context.putImageData(image, 0, 0);
}

const LITTLE_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

// A colour as one number, laid out as the dots of a canvas are.
function packed([r, g, b]) {
  return (LITTLE_ENDIAN ? (255 << 24) | (b << 16) | (g << 8) | r : (r << 24) | (g << 16) | (b << 8) | 255) >>> 0;
}

function css(step) {
  return `rgb(${ramp()[step].join(', ')})`;
}

// Black or white, whichever is read more easily on a step of the ramp.
function inkOn(step) {
  const [r, g, b] = ramp()[step].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000' : '#fff';
}

function scaleName(sheet) {
  const what = settings.kind === 'weights' ? 'weight' : 'contribution';
  const share = settings.renormalise ? `${what}, rows renormalised` : what;
  const range = settings.scale === 'row' ? 'share of the largest in its row' : `0 to ${short(rangeOf(sheet))}`;
  return `${SCALES[settings.scale].name} scale: ${share}, ${range}`;
}

function short(value) {
  return Number(value.toPrecision(3)).toString();
}

function drawLegend(sheet) {
  const scale = SCALES[settings.scale];
  const range = settings.scale === 'row' ? 1 : rangeOf(sheet);
  paintSteps(document.getElementById('legend'), Array.from({length: 256}, (_, k) => k), 256, 1);
  const ticks = scale.ticks.map((t) => {
    const tick = element('span', {}, settings.scale === 'row' ? `${100 * t} %` : short(t * range));
    tick.style.left = `${100 * scale.place(t)}%`;
    return tick;
  });
  document.getElementById('legend-ticks').replaceChildren(...ticks);
  document.getElementById('legend-name').textContent = scaleName(sheet);
}
