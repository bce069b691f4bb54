// The text as tokens: shaded by what the chosen token attends to in the open head.

function drawText() {
  const sheet = sheetNow();
  const list = byId('tokens');
  if (list.dataset.sheet !== String(settings.sheet)) {
    list.replaceChildren(...sheet.tokens.map((token, i) => chipOf(sheet, token, i)));
    list.dataset.sheet = settings.sheet;
  }
  byId('text-note').textContent = textNote(sheet);
}

function chipOf(sheet, token, i) {
  const chip = element('button', {type: 'button', class: 'chip', 'data-place': i});
  chip.append(tokenElement(sheet.starts[i], token));
  return chip;
}

function textNote(sheet) {
  const about = {
    all: '',
    pooled: `The text has ${page.tokens} tokens: too many for a picture of each pair. These pictures are pooled: `
      + 'a cell is a block of tokens (weights to a block added, from a block averaged). Part “window” shows some tokens exactly.',
    window: `Tokens ${sheet.from} to ${sheet.to - 1} of ${page.tokens}, each pair; what their rows give to other tokens is not shown, and rows sum to less than 1.`,
  };
  const shading = 'Press a token: it is shaded by what that token attends to in the open head.';
  return `${about[sheet.name]} ${shading}`.trim();
}

// Shades each token by the chosen one's row; `matrix` is that of the open head.
function shadeText(matrix) {
  const sheet = sheetNow();
  const row = rowOfToken(matrix, settings.token);
  const shade = shader(sheet);
  const column = columnsOf(matrix, sheet);
  for (const chip of byId('tokens').children) {
    const i = Number(chip.dataset.place);
    const k = column[i];
    const plain = row < 0 || k < 0 || isHidden(matrix, row, k);
    const step = plain ? -1 : shade(matrix.values[row * matrix.n + k], matrix.largest[row]);
    const look = `${step} ${k < 0} ${i === settings.token} ${isDark()}`;
    if (chip.dataset.look === look) continue; // a change of style costs more than all of this
    chip.dataset.look = look;
    chip.setAttribute('aria-pressed', String(i === settings.token));
    chip.classList.toggle('left-out', k < 0);
    chip.style.backgroundColor = plain ? '' : css(step);
    chip.style.color = plain ? '' : inkOn(step);
  }
}

// Of each token of the sheet its row in the matrix, or -1 where it is left out.
function columnsOf(matrix, sheet) {
  const column = new Array(sheet.n).fill(-1);
  matrix.groups.forEach((group, g) => group.forEach((i) => (column[i] = g)));
  return column;
}

function rowOfToken(matrix, token) {
  return token < 0 ? -1 : matrix.groups.findIndex((group) => group.includes(token));
}

function onTextClick(event) {
  const chip = event.target.closest('.chip');
  if (chip) chooseToken(Number(chip.dataset.place));
}

// Chooses a token of the sheet; the same once more forgets it.
function chooseToken(token) {
  choose({token: settings.token === token ? -1 : token});
}
