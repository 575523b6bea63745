// What a reader does with a page: theme, sorting, filters. All of it works with the keyboard.
'use strict';
(() => {
  const root = document.documentElement;
  // A file may not keep anything, so the choice is remembered where the browser allows it and else for this visit.
  const memory = { get: () => { try { return localStorage.getItem('pdreplay-theme'); } catch { return null; } },
    set: (value) => { try { localStorage.setItem('pdreplay-theme', value); } catch { /* not kept */ } } };
  const themes = ['system', 'light', 'dark'];
  const button = document.getElementById('theme');
  const apply = (name) => {
    if (name === 'system') delete root.dataset.theme; else root.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    pageCharts.redraw();
  };
  let theme = themes.includes(memory.get()) ? memory.get() : 'system';
  button.hidden = false;
  button.addEventListener('click', () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    memory.set(theme);
    apply(theme);
  });
  if (theme !== 'system') apply(theme);
  for (const query of ['(prefers-color-scheme: dark)', 'print']) {
    matchMedia(query).addEventListener('change', () => pageCharts.redraw());
  }
  let waiting = 0;
  addEventListener('resize', () => { clearTimeout(waiting); waiting = setTimeout(pageCharts.redraw, 120); });

  const value = (row, column) => { const cell = row.cells[column]; return cell.dataset.v ?? cell.textContent; };
  // `−1,044 s` and `42.8 ms` are lengths of time, `56K` is a count: what has no raw value beneath is read as it is written.
  const factors = { ms: 1e-3, K: 1e3, M: 1e6 };
  const quantity = (words) => {
    const found = /^[^\d+−-]{0,2}([+−-]?[\d.,]+(?:e[+-]?\d+)?)\s*(ms|K|M)?/.exec(words);
    return found ? parseFloat(found[1].replace('−', '-').replaceAll(',', '')) * (factors[found[2]] ?? 1) : NaN;
  };
  const compare = (column, isNumber, sign) => (a, b) => {
    const [x, y] = [value(a, column), value(b, column)];
    if (!isNumber) return sign * x.localeCompare(y, 'en', { numeric: true });
    const [m, n] = [quantity(x), quantity(y)];
    // What has no value stays at the end, however it is sorted.
    if (Number.isNaN(m) || Number.isNaN(n)) return Number.isNaN(m) - Number.isNaN(n);
    return sign * (m - n);
  };
  for (const table of document.querySelectorAll('table.sortable')) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.setAttribute('aria-sort', 'none');
      head.querySelector('button').addEventListener('click', () => {
        const isNumber = head.classList.contains('n');
        const first = isNumber ? 'descending' : 'ascending', other = isNumber ? 'ascending' : 'descending';
        const order = head.getAttribute('aria-sort') === first ? other : first;
        heads.forEach((cell) => cell.setAttribute('aria-sort', cell === head ? order : 'none'));
        const rows = [...table.tBodies[0].rows].sort(compare(column, isNumber, order === 'ascending' ? 1 : -1));
        table.tBodies[0].append(...rows);
      });
    });
  }
  for (const field of document.querySelectorAll('input[data-table]')) {
    const rows = [...document.getElementById(field.dataset.table).tBodies[0].rows];
    const shown = field.parentElement.querySelector('output');
    field.parentElement.hidden = false;
    field.addEventListener('input', () => {
      const wanted = field.value.trim().toLowerCase();
      const left = rows.filter((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); return !row.hidden; });
      shown.textContent = wanted ? `${left.length} of ${rows.length} rows` : '';
    });
  }
})();
