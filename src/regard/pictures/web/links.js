// Links between two columns of tokens, queries left and keys right: only the strongest are drawn.

const SVG = 'http://www.w3.org/2000/svg';
const LINE = 1.55; // height of a token's line, in ems
const COLUMN = 11; // width of a column of tokens, in ems

function svg(name, attributes = {}, text = '') {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

function linksWanted(matrix) {
  return Math.min(settings.links || Math.min(2 * matrix.n, 300), linksPossible(matrix));
}

function linksPossible(matrix) {
  return Math.max(1, Math.min(matrix.n * matrix.n, 1000));
}

function drawLinks(matrix, sheet) {
  const pairs = strongestPairs(matrix, linksWanted(matrix));
  const range = byId('links-range');
  range.max = linksPossible(matrix);
  range.value = linksWanted(matrix);
  byId('links-value').textContent = linksWanted(matrix);
  byId('links').replaceChildren(linksPicture(matrix, sheet, pairs));
  byId('readout').textContent = linksNote(matrix, pairs);
}

function linksNote(matrix, pairs) {
  if (!pairs.length) return 'No link to draw.';
  const [i, j] = pairs[pairs.length - 1];
  const k = i * matrix.n + j;
  return `Drawn: the ${pairs.length} strongest of ${matrix.n * matrix.n} pairs, down to ${written(matrix.values[k], matrix.bounds[k])}. `
    + 'Left the queries, right the keys; a wider line is stronger. Press a token to see its links alone.';
}

// The picture, with its colours in it, so that it can be saved as it is.
function linksPicture(matrix, sheet, pairs) {
  const em = 0.85 * rem();
  const width = 46 * em;
  const height = (matrix.n + 1) * LINE * em;
  const picture = svg('svg', {
    xmlns: SVG, viewBox: `0 0 ${width} ${height}`, width, height, role: 'group',
    'aria-label': `The ${pairs.length} strongest links of ${headName(settings.layer, settings.head)}`,
    'font-family': 'system-ui, sans-serif', 'font-size': em,
  });
  picture.append(svg('rect', {width, height, fill: theme().paper}));
  picture.append(curves(matrix, sheet, pairs, em, width));
  matrix.groups.forEach((group, g) => {
    const label = labelOf(sheet, group);
    picture.append(linkLabel(label, group, true, lineAt(g, em), em, width));
    picture.append(linkLabel(label, group, false, lineAt(g, em), em, width));
  });
  return picture;
}

function lineAt(g, em) {
  return (g + 1) * LINE * em;
}

// Index and token are texts of their own, so that each keeps its direction: the token beside its
// links, the index at the edge of the picture.
function linkLabel(label, group, isQuery, y, em, width) {
  const chosen = group.includes(settings.token);
  const made = svg('g', {
    class: 'link-token', 'data-token': group[0], tabindex: '0', role: 'button', 'aria-pressed': chosen,
    'aria-label': `${isQuery ? 'query' : 'key'} ${label.index} ${label.token}`,
  });
  const text = (x, anchor, fill, said) => svg('text', {
    x, y, fill, 'text-anchor': anchor, 'dominant-baseline': 'central', 'font-weight': chosen ? 700 : 400, direction: 'ltr',
  }, said);
  const side = COLUMN * em;
  made.append(
    svg('title', {}, `${label.index} ${label.token}`),
    svg('rect', { // all of the line can be pressed
      x: isQuery ? 0 : width - side, y: y - (LINE * em) / 2, width: side, height: LINE * em, fill: 'none', 'pointer-events': 'all',
    }),
    text(isQuery ? side : width - side, isQuery ? 'end' : 'start', theme().ink, cut(label.token)),
    text(isQuery ? 2.2 * em : width - 0.4 * em, 'end', theme().faint, String(label.index)),
  );
  return made;
}

// A token too long for its column is cut; its title has all of it.
function cut(token) {
  const letters = [...token];
  const most = Math.floor((COLUMN - 3) / 0.58);
  return letters.length > most ? `${letters.slice(0, most - 1).join('')}…` : token;
}

function curves(matrix, sheet, pairs, em, width) {
  const shade = shader(sheet);
  const group = svg('g', {fill: 'none', 'stroke-linecap': 'round'});
  const chosen = rowOfToken(matrix, settings.token);
  const [from, to] = [(COLUMN + 0.5) * em, width - (COLUMN + 0.5) * em];
  const middle = (from + to) / 2;
  for (const [i, j] of [...pairs].reverse()) { // the strongest on top
    const value = matrix.values[i * matrix.n + j];
    const step = Math.max(shade(value, matrix.largest[i]), 40);
    const faded = chosen >= 0 && i !== chosen && j !== chosen;
    const line = svg('path', {
      d: `M${from} ${lineAt(i, em)}C${middle} ${lineAt(i, em)} ${middle} ${lineAt(j, em)} ${to} ${lineAt(j, em)}`,
      stroke: css(step), 'stroke-width': ((0.08 + 0.3 * (step / 255)) * em).toFixed(2), opacity: faded ? 0.12 : 0.85,
    });
    const k = i * matrix.n + j;
    line.append(svg('title', {}, `${labelOf(sheet, matrix.groups[i]).token} → ${labelOf(sheet, matrix.groups[j]).token}: ${written(value, matrix.bounds[k])}`));
    group.append(line);
  }
  return group;
}

function onLinksClick(event) {
  const label = event.target.closest('.link-token');
  if (label) chooseToken(Number(label.dataset.token));
}

function onLinksKey(event) {
  const label = event.target.closest('.link-token');
  if (!label || !['Enter', ' '].includes(event.key)) return;
  event.preventDefault();
  const place = [...byId('links').querySelectorAll('.link-token')].indexOf(label);
  chooseToken(Number(label.dataset.token));
  refocus = place;
}

let refocus = -1;

// The picture is made anew when a token is chosen: the focus goes where it was.
function restoreFocus() {
  if (refocus < 0) return;
  const label = byId('links').querySelectorAll('.link-token')[refocus];
  refocus = -1;
  if (label) label.focus();
}
