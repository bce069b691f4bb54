// What the page holds: its description as JSON, and a deflated block of weights for each layer,
// decoded when first asked for.

const page = JSON.parse(document.getElementById('data').textContent);
const blocks = new Map(); // "sheet-layer" -> promise of the decoded layer

// A byte c stands for the square roots from (c - ½) / 255 to (c + ½) / 255. The middle of that range of
// weights is (c² + ¼) / 255², and its ends lie c / 255² away. Byte 0 is shown as 0.
const STEP = 1 / 255 ** 2;
const VALUE = Float64Array.from({length: 256}, (_, c) => (c ? (c * c + 0.25) * STEP : 0));
const BOUND = Float64Array.from({length: 256}, (_, c) => (c || 0.25) * STEP);

function layerOf(sheet, layer) {
  const name = `${sheet}-${layer}`;
  if (!blocks.has(name)) blocks.set(name, decode(sheet, name));
  return blocks.get(name);
}

async function decode(sheet, name) {
  const holder = document.getElementById(`block-${name}`);
  const buffer = await inflate(bytesOf(holder.textContent));
  holder.remove(); // its text is not needed again
  return sections(buffer, page.sheets[sheet]);
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).arrayBuffer();
}

// The parts of a layer, as views: numbers of rows first, then the bytes of all pairs.
function sections(buffer, sheet) {
  let at = 0;
  const take = (Kind, count) => {
    const view = new Kind(buffer, at, count);
    at += view.byteLength;
    return view;
  };
  const rows = page.heads * sheet.n;
  const strongest = () => ({
    key: take(Uint32Array, rows), value: take(Float32Array, rows), total: take(Float32Array, rows),
  });
  const weights = strongest();
  const norm = sheet.contributions ? take(Float32Array, rows) : null;
  const contributions = sheet.contributions ? strongest() : null;
  const codes = take(Uint8Array, sheet.causal ? page.heads * triangle(sheet.n) : rows * sheet.n);
  return {weights, contributions, norm, codes, hidden: sheet.masked ? new Uint8Array(buffer, at) : null};
}

function triangle(n) {
  return (n * (n + 1)) / 2;
}

// Where the bytes of a row begin, and how many keys it has: only a triangle is stored where causal.
function rowPlace(sheet, head, i) {
  const n = sheet.n;
  if (!sheet.causal) return {start: (head * n + i) * n, count: n};
  return {start: head * triangle(n) + triangle(i), count: i + 1};
}

// Whether a pair is hidden, by its bit.
function bitOf(bits, k) {
  return (bits[k >> 3] >> (k & 7)) & 1;
}
