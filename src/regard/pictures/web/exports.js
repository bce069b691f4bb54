// Copying and saving what is shown.

const LARGEST_PICTURE = 8000; // dots a side of a saved picture

function fileName(ending) {
  return `regard-${headName(settings.layer, settings.head)}-${settings.kind}.${ending}`;
}

function save(blob, name) {
  const link = element('a', {href: URL.createObjectURL(blob), download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Quoted where it must be. Labels begin with a number, so that no spreadsheet takes one for a formula.
function field(text) {
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

// A row a query, a column a key, six digits; a hidden pair is empty.
function csvOf(matrix, sheet) {
  const names = matrix.groups.map((group) => {
    const {index, token} = labelOf(sheet, group);
    return field(`${index} ${token}`);
  });
  const corner = field(`${headName(settings.layer, settings.head)} ${settings.kind}: query in rows, key in columns`);
  const lines = names.map((name, i) => {
    const row = names.map((_, j) => (isHidden(matrix, i, j) ? '' : Number(matrix.values[i * matrix.n + j].toPrecision(6))));
    return [name, ...row].join(',');
  });
  return `${[corner, ...names].join(',')}\n${lines.join('\n')}\n`;
}

async function copyCsv() {
  const text = csvOf(stage.matrix, sheetNow());
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyByHand(text); // where the clipboard's interface is refused
  }
  announce(`Copied ${stage.matrix.n} rows of CSV.`);
}

function copyByHand(text) {
  const area = element('textarea', {class: 'unseen'});
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

function announce(text) {
  const box = byId('readout');
  box.textContent = text;
}

function savePng() {
  if (settings.view === 'links') linksCanvas((canvas) => canvas.toBlob((blob) => save(blob, fileName('png'))));
  else headCanvas().toBlob((blob) => save(blob, fileName('png')));
}

// The whole head with labels, a title and the scale's name, whatever is scrolled to.
function headCanvas() {
  const whole = stage.left + stage.matrix.n * stage.cell + 2;
  const ratio = Math.min(2, LARGEST_PICTURE / whole);
  const foot = 3.4 * stage.font;
  const canvas = element('canvas');
  canvas.width = Math.round(Math.max(whole, 34 * stage.font) * ratio);
  canvas.height = Math.round((whole + foot) * ratio);
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  context.fillStyle = theme().paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  paintHead(context, {width: whole, height: whole, x: 0, y: 0, marks: false});
  context.font = fontOf(stage.font);
  context.fillStyle = theme().ink;
  context.textAlign = 'left';
  context.fillText(`${headName(settings.layer, settings.head)} · row = query, column = key`, 0.5 * stage.font, whole + stage.font);
  context.fillStyle = theme().faint;
  context.fillText(scaleName(sheetNow()), 0.5 * stage.font, whole + 2.4 * stage.font);
  return canvas;
}

function svgText() {
  return new XMLSerializer().serializeToString(byId('links').querySelector('svg'));
}

function saveSvg() {
  save(new Blob([svgText()], {type: 'image/svg+xml'}), fileName('svg'));
}

// The links drawn once more, on a canvas: the page's policy loads no image, its own included.
function linksCanvas(done) {
  const picture = byId('links').querySelector('svg');
  const [, , width, height] = picture.getAttribute('viewBox').split(' ').map(Number);
  const ratio = Math.min(2, LARGEST_PICTURE / Math.max(width, height));
  const canvas = element('canvas', {width: Math.round(width * ratio), height: Math.round(height * ratio)});
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  context.fillStyle = theme().paper;
  context.fillRect(0, 0, width, height);
  context.lineCap = 'round';
  for (const line of picture.querySelectorAll('path')) {
    context.globalAlpha = Number(line.getAttribute('opacity'));
    context.strokeStyle = line.getAttribute('stroke');
    context.lineWidth = Number(line.getAttribute('stroke-width'));
    context.stroke(new Path2D(line.getAttribute('d')));
  }
  context.globalAlpha = 1;
  context.textBaseline = 'middle';
  context.direction = 'ltr';
  for (const text of picture.querySelectorAll('text')) {
    context.font = fontOf(picture.getAttribute('font-size'), text.getAttribute('font-weight'));
    context.fillStyle = text.getAttribute('fill');
    context.textAlign = text.getAttribute('text-anchor') === 'end' ? 'right' : 'left';
    context.fillText(text.firstChild.data, Number(text.getAttribute('x')), Number(text.getAttribute('y')));
  }
  done(canvas);
}

// On paper: light, and all of the head.
function beforePrint() {
  printing = true;
  if (stage.matrix) showHead(stage.matrix);
}

function afterPrint() {
  printing = false;
  renderSoon();
}
