// One head as it is shown: some tokens left out, word pieces merged, rows renormalised or not, each
// value with the bound of its error.

// The rows (and columns) that are shown: each a list of tokens of the sheet.
function groupsOf(sheet, choice) {
  const groups = [];
  let word = null;
  for (let i = 0; i < sheet.n; i++) {
    if (isLeftOut(sheet, i, choice)) continue;
    if (choice.words && sheet.words[i] === word) groups[groups.length - 1].push(i);
    else groups.push([i]);
    word = sheet.words[i];
  }
  return groups;
}

function isLeftOut(sheet, i, choice) {
  return (!choice.special && sheet.special[i]) || (!choice.first && sheet.first && i === 0);
}

function labelOf(sheet, group) {
  const token = group.map((i) => sheet.tokens[i]).join('');
  return {index: sheet.starts[group[0]], token: group.length > 1 ? wordOf(sheet, group) : token};
}

// A word of several pieces, in the text's own letters.
function wordOf(sheet, group) {
  return sheet.spelled[group[0]] || group.map((i) => sheet.tokens[i]).join('');
}

// The head as it is shown; without `bounds` in half the time, for a thumbnail.
function matrixOf(sheet, layer, head, choice, withBounds = true) {
  const groups = groupsOf(sheet, choice);
  const n = groups.length;
  const place = new Int32Array(sheet.n).fill(-1); // of each token: its row, or -1
  groups.forEach((group, g) => group.forEach((i) => (place[i] = g)));
  const made = {
    n, groups, causal: sheet.causal, values: new Float32Array(n * n), bounds: new Float32Array(withBounds ? n * n : 0),
    left: new Float32Array(n), leftBound: new Float32Array(n), total: new Float32Array(n),
    largest: new Float32Array(n), hidden: layer.hidden && hiddenPairs(sheet, layer, head, groups),
  };
  const addRow = rowAdder(sheet, layer, head, choice, place, made);
  groups.forEach((group, g) => {
    group.forEach((i) => addRow(i, g, 1 / group.length));
    if (choice.renormalise) renormalise(made, g);
    made.largest[g] = largestOf(made.values, g * n, n);
  });
  return made;
}

// A function that adds a token's row, times `share`, to row g.
function rowAdder(sheet, layer, head, choice, place, made) {
  const scaled = choice.kind === 'contributions';
  const strongest = scaled ? layer.contributions : layer.weights;
  const norm = scaled ? layer.norm.subarray(head * sheet.n, (head + 1) * sheet.n) : new Float32Array(sheet.n).fill(1);
  const one = new Float32Array(sheet.n);
  const withBounds = made.bounds.length > 0;
  return (i, g, share) => {
    const row = head * sheet.n + i;
    const {start, count} = rowPlace(sheet, head, i);
    const to = g * made.n;
    decodeRow(layer.codes, start, count, VALUE, norm, one);
    putExact(layer, row, scaled, norm, one, false);
    made.left[g] += spread(one, count, place, made.values, to, share);
    made.total[g] += strongest.total[row] * share;
    if (!withBounds) return;
    decodeRow(layer.codes, start, count, BOUND, norm, one);
    putExact(layer, row, scaled, norm, one, true);
    made.leftBound[g] += spread(one, count, place, made.bounds, to, share);
  };
}

function decodeRow(codes, start, count, table, norm, row) {
  for (let j = 0; j < count; j++) row[j] = table[codes[start + j]] * norm[j];
}

// Adds each token's number to its place; gives the sum of those that have none.
function spread(row, count, place, sums, start, share) {
  let left = 0;
  for (let j = 0; j < count; j++) {
    if (place[j] < 0) left += row[j] * share;
    else sums[start + place[j]] += row[j] * share;
  }
  return left;
}

// The strongest weight of the row, and its strongest contribution, are kept exactly: their bounds are 0.
function putExact(layer, row, scaled, norm, one, isBound) {
  const {key, value} = layer.weights;
  one[key[row]] = isBound ? 0 : value[row] * norm[key[row]];
  if (!scaled) return;
  const other = layer.contributions;
  one[other.key[row]] = isBound ? 0 : other.value[row];
}

// Row g divided by what is left of it; the error of what was left out spreads to each value.
function renormalise(made, g) {
  const {values, bounds, n} = made;
  const rest = made.total[g] - made.left[g];
  const by = rest > 1e-9 ? 1 / rest : 0;
  for (let k = g * n; k < (g + 1) * n; k++) {
    values[k] *= by;
    if (bounds.length) bounds[k] = (bounds[k] + values[k] * made.leftBound[g]) * by;
  }
}

function largestOf(values, start, n) {
  let largest = 0;
  for (let k = start; k < start + n; k++) if (values[k] > largest) largest = values[k];
  return largest;
}

function isHidden(matrix, i, j) {
  return matrix.hidden ? matrix.hidden[i * matrix.n + j] === 1 : matrix.causal && j > i;
}

// Of each pair of groups 1 where every pair of their tokens is hidden.
function hiddenPairs(sheet, layer, head, groups) {
  const hides = (i, j) => bitOf(layer.hidden, (head * sheet.n + i) * sheet.n + j);
  const made = new Uint8Array(groups.length ** 2);
  groups.forEach((rows, g) => groups.forEach((columns, k) => {
    made[g * groups.length + k] = Number(rows.every((i) => columns.every((j) => hides(i, j))));
  }));
  return made;
}

// The first and the last rank that the value can have among its row, given the bounds.
function rankOf(matrix, i, j) {
  const {values, bounds, n} = matrix;
  const low = values[i * n + j] - bounds[i * n + j];
  const high = values[i * n + j] + bounds[i * n + j];
  const slack = 1e-6 * high + 1e-12; // ranges that only touch do not overlap
  let first = 1;
  let last = 0;
  let keys = 0;
  for (let k = 0; k < n; k++) {
    if (isHidden(matrix, i, k)) continue;
    keys++;
    if (values[i * n + k] - bounds[i * n + k] >= high - slack && k !== j) first++;
    if (values[i * n + k] + bounds[i * n + k] > low + slack || k === j) last++;
  }
  return {first, last, keys};
}

// The share of the rows' weight that went to tokens left out, over the rows that are shown.
function leftOut(matrix) {
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const total = sum(matrix.total);
  return total > 0 ? {share: sum(matrix.left) / total, bound: sum(matrix.leftBound) / total} : null;
}

// The `count` largest pairs, the largest first: [row, column] each.
function strongestPairs(matrix, count) {
  const {n, values} = matrix;
  const order = [];
  for (let k = 0; k < n * n; k++) if (values[k] > 0) order.push(k);
  order.sort((a, b) => values[b] - values[a]);
  return order.slice(0, count).map((k) => [Math.floor(k / n), k % n]);
}

// A value with as many digits as its bound leaves: "0.804213", "≈ 0.0123 ± 0.0005".
function written(value, bound) {
  if (!bound) return value >= 1e-4 || value === 0 ? value.toFixed(6) : value.toExponential(3);
  const {error, digits} = roundedUp(bound);
  return `≈ ${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
}

// One digit, or 10, rounded up after half a unit for the rounding of the value beside it.
function roundedUp(bound) {
  const power = Math.floor(Math.log10(bound));
  const digits = Math.max(0, -power);
  const unit = 10 ** -digits;
  return {error: Math.ceil(bound / unit + 0.5 - 1e-9) * unit, digits};
}
