// Options of the chart library from the data of the figures. Colours are read from the style sheet at each drawing, so a
// change of theme or a sheet of paper draws anew. Nothing here knows what a run is.
'use strict';
const pageCharts = (() => {
  const probe = document.createElement('span');
  probe.hidden = true;
  document.body.append(probe);
  const color = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const part = (name) => color(`c-${name}`);

  const number = (value) => {
    const size = Math.abs(value);
    const words = size >= 1000 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(size >= 100 ? 4 : 3)));
    return words.replace('-', '−');
  };
  // Values have the digits of the tables: three of a time, one decimal of a share.
  const digits = { s: (size) => size >= 0.0005 && size < 99.95 ? Math.max(0, Math.min(3, 2 - Math.floor(Math.log10(size * 1.0005)))) : -1,
    '%': (size) => size === 0 || (size >= 0.05 && size < 999.95) ? 1 : -1 };
  const withUnit = (value, unit) => {
    const decimals = digits[unit] ? digits[unit](Math.abs(value)) : -1;
    return (decimals < 0 ? number(value) : value.toFixed(decimals).replace('-', '−')) + (unit ? ` ${unit}` : '');
  };
  const seconds = (value) => `${number(value)} s`;

  // Ticks are 1, 2 or 5 × a power of ten apart; on a logarithmic axis they are these numbers themselves.
  const exact = (value) => Number(value.toPrecision(12));
  const above = (value) => {
    const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
    return exact([1, 2, 5, 10].find((n) => n * power >= value * (1 - 1e-9)) * power);
  };
  const below = (value) => {
    const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
    return exact([5, 2, 1].find((n) => n * power <= value * (1 + 1e-9)) * power);
  };
  // Between them about `most` steps, whole ones of what is counted; both ends are ticks.
  const even = (low, high, { most = 6, whole = false } = {}) => {
    const interval = Math.max(above((high - low || Math.abs(high) || 1) / most), whole ? 1 : 0);
    const end = Math.ceil(exact(high / interval)) * interval;
    return { min: exact(Math.floor(exact(low / interval)) * interval), max: exact(end > low ? end : end + interval), interval };
  };
  const factors = (low, high) => {
    const min = below(low), max = above(high > low ? high : low * 1.001), ticks = [];
    const steps = Math.log10(max / min) > 5 ? [1] : [1, 2, 5];
    for (let power = 10 ** Math.floor(Math.log10(min)); power <= max; power *= 10) ticks.push(...steps.map((n) => exact(n * power)));
    return { min, max, ticks: ticks.filter((tick) => tick >= min && tick <= max) };
  };
  const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  const text = (words) => String(words).replace(/[&<>"']/g, (c) => escapes[c]);
  // Labels stand in text of the chart library: only control characters matter there.
  const label = (words) => String(words).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '·');

  const theme = () => ({ fg: color('fg'), muted: color('muted'), line: color('line'), card: color('card') });
  const tooltip = (t) => ({ confine: true, backgroundColor: t.card, borderColor: t.line, textStyle: { color: t.fg, fontSize: 13 } });
  const axis = (t, name, more) => ({
    name, nameLocation: 'middle', nameTextStyle: { color: t.muted, fontSize: 12 },
    axisLabel: { color: t.muted, hideOverlap: true }, axisLine: { lineStyle: { color: t.line } },
    axisTick: { lineStyle: { color: t.line } }, splitLine: { lineStyle: { color: t.line } }, ...more,
  });
  const base = (t) => ({ animation: false, backgroundColor: 'transparent', textStyle: { color: t.fg }, tooltip: tooltip(t) });
  const grid = (more) => ({ left: 56, right: 18, top: 16, bottom: 44, ...more });
  const titled = (a) => a.unit ? `${a.name}, ${a.unit}` : a.name;
  const values = (t, a, ends, more) => ({
    type: 'value', min: ends.min, max: ends.max, interval: ends.interval, ...axis(t, titled(a), more),
    axisLabel: { color: t.muted, hideOverlap: true, formatter: number },
  });
  const logarithmic = (t, a, { min, max, ticks }, more) => ({
    type: 'log', min, max, ...axis(t, titled(a), more), axisTick: { customValues: ticks, lineStyle: { color: t.line } },
    axisLabel: { color: t.muted, hideOverlap: true, customValues: ticks, formatter: number },
  });
  // Time from the start of the run; its end, which is no round number, has no label.
  const time = (t, end_s) => {
    const scale = values(t, { name: 'time of the run', unit: 's' }, { min: 0, max: end_s, interval: above(end_s / 10) }, { nameGap: 28 });
    return { ...scale, axisLabel: { ...scale.axisLabel, showMaxLabel: false } };
  };
  // Columns of time are categories, the numbers below them an axis of their own.
  const columns = (t, names, width_s) => [
    { type: 'category', data: names, ...axis(t, '', {}), axisLabel: { show: false }, axisTick: { show: false }, splitLine: { show: false } },
    { ...time(t, names.length * width_s), position: 'bottom', splitLine: { show: false } },
  ];

  // Shares that took longer. Nothing takes longer than the slowest, and a logarithmic axis has no zero: the last level runs on to it.
  const tailOf = (points) => {
    let level = 100;
    return points.map(([x, share]) => {
      const longer = exact(100 - share);
      level = longer > 0 ? longer : level;
      return [x, level, longer];
    });
  };

  // Rows of many sessions are low, and only some of them have room for their names.
  const rowHeight = (rows) => rows.length > 60 ? Math.min(12, 1330 / rows.length) : 14;

  const kinds = {
    stacked(c, t) {
      const n = c.totals.length;
      const x = Array.from({ length: n }, (_, i) => seconds(i * c.width_s));
      return {
        ...base(t), grid: grid(),
        tooltip: { ...tooltip(t), trigger: 'axis', axisPointer: { type: 'shadow' }, formatter: (items) => {
          const i = items[0].dataIndex;
          const lines = items.filter((item) => item.value > 0).map((item) =>
            `${item.marker}${text(item.seriesName)}: ${withUnit(item.value, '%')} (${number(c.series[item.seriesIndex].values[i])})`);
          return [`from ${seconds(i * c.width_s)}: ${number(c.totals[i])} requests`, ...lines].join('<br>');
        } },
        xAxis: columns(t, x, c.width_s),
        yAxis: values(t, { name: 'share', unit: '%' }, { min: 0, max: 100, interval: 20 }, { nameGap: 38 }),
        series: c.series.map((s) => ({
          name: label(s.name), type: 'bar', stack: 'all', barCategoryGap: '6%', itemStyle: { color: part(s.color) },
          data: s.values.map((v, i) => (c.totals[i] ? (v / c.totals[i]) * 100 : null)),
        })),
      };
    },

    lines(c, t, chosen) {
      const tail = c.cumulative && chosen === 1;
      const y = tail ? { name: `${c.y.name} that took longer`, unit: c.y.unit, log: true } : c.y;
      const drawn = c.series.map((s) => tail ? tailOf(s.points) : s.points);
      const series = c.series.map((s, i) => ({
        name: label(s.name), type: 'line', step: c.cumulative && 'end', showSymbol: s.points.length < 3, symbol: 'circle', symbolSize: 8, data: drawn[i],
        lineStyle: { color: part(s.color), width: 2, type: s.dash }, itemStyle: { color: part(s.color) },
      }));
      if (series.length && c.marks.length) {
        series[0].markLine = {
          symbol: 'none', silent: true, lineStyle: { color: t.fg, type: 'dotted' },
          label: { color: t.fg, position: 'insideEndTop', formatter: (m) => m.name },
          data: c.marks.map((m) => ({ yAxis: m.at, name: label(m.name) })),
        };
      }
      const reach = (at) => {
        const all = [...drawn.flatMap((points) => points.map((p) => p[at])), ...(at ? c.marks.map((m) => m.at) : [])];
        return all.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
      };
      const ends = (a, [low, high]) => a.log ? factors(low, high) : a.unit === '%' ? { min: 0, max: 100, interval: 20 } : even(0, high);
      const scale = (a, at, more) => (a.log ? logarithmic : values)(t, a, ends(a, drawn.some((points) => points.length) ? reach(at) : [1, 10]), more);
      return {
        ...base(t), grid: grid({ left: 62 }),
        // Curves tell all their values at one x; single points tell their own.
        tooltip: { ...tooltip(t), trigger: c.series.every((s) => s.points.length > 2) ? 'axis' : 'item', formatter: (found) => {
          const items = [found].flat();
          const lines = items.map((p) => `${p.marker}${text(p.seriesName)}: ${withUnit(p.value[2] ?? p.value[1], y.unit)} (${withUnit(p.value[0], c.x.unit)})`);
          return lines.join('<br>');
        } },
        xAxis: scale(c.x, 0, { nameGap: 28 }),
        yAxis: scale(y, 1, { nameGap: 46 }),
        series,
      };
    },

    bars(c, t) {
      // Above and below the bars there is room for their labels.
      const ends = even(Math.min(0, ...c.values) * 1.1, Math.max(0, ...c.values) * 1.1, { whole: !c.y.unit });
      return {
        ...base(t), grid: grid(),
        tooltip: { ...tooltip(t), formatter: (p) => `${text(p.name)}: ${withUnit(p.value, c.y.unit || c.y.name)}` },
        xAxis: { type: 'category', data: c.categories.map(label), ...axis(t, '', {}), axisLabel: { color: t.muted, interval: 0 } },
        yAxis: values(t, c.y, ends, { nameGap: 38 }),
        series: [{ type: 'bar', barMaxWidth: 90, label: { show: true, color: t.fg, formatter: (p) => withUnit(p.value, c.y.unit) },
          data: c.values.map((value, i) => ({
            value, label: { position: value < 0 ? 'bottom' : 'top' }, itemStyle: { color: part(c.colors[i] || c.color) },
          })) }],
      };
    },

    strip(c, t, chosen) {
      const rows = c.orders[chosen].rows;
      const classes = Object.fromEntries(c.classes.map((k) => [k.letter, { name: k.name, color: part(k.color) }]));
      // Equal neighbours are one box: [from, to, row, letter].
      const boxes = rows.flatMap((row, r) => {
        const found = [];
        for (let i = 0; i < row.cells.length;) {
          let end = i + 1;
          while (row.cells[end] === row.cells[i]) end += 1;
          if (row.cells[i] !== ' ') found.push([i * c.width_s, end * c.width_s, r, row.cells[i]]);
          i = end;
        }
        return found;
      });
      const many = rows.length > 60;
      return {
        ...base(t), grid: grid({ left: innerWidth < 700 ? 84 : 190 }),
        tooltip: { ...tooltip(t), formatter: (p) =>
          `${text(rows[p.value[2]].label)}<br>${seconds(p.value[0])} to ${seconds(p.value[1])}<br>${text(classes[p.value[3]].name)}` },
        xAxis: time(t, c.columns * c.width_s),
        yAxis: { type: 'category', inverse: true, data: rows.map((row) => label(row.label)), ...axis(t, '', {}), splitLine: { show: false },
          axisTick: { show: false }, axisLabel: { color: t.muted, fontSize: 11, interval: Math.ceil(13 / rowHeight(rows)) - 1,
            width: innerWidth < 700 ? 76 : 180, overflow: 'truncate' } },
        series: [{
          type: 'custom', data: boxes, encode: { x: [0, 1], y: 2 }, progressive: 4000,
          renderItem(params, api) {
            const [left, top] = api.coord([api.value(0), api.value(2)]);
            const [right] = api.coord([api.value(1), api.value(2)]);
            const height = Math.max(1, api.size([0, 1])[1] * (many ? 1 : 0.84));
            return { type: 'rect', shape: { x: left, y: top - height / 2, width: Math.max(1, right - left), height },
              style: { fill: classes[boxes[params.dataIndex][3]].color } };
          },
        }],
      };
    },

    heat(c, t, chosen) {
      const g = c.grids[chosen];
      const cells = g.values.flatMap((row, y) => row.map((value, x) => [x, y, value]).filter((cell) => cell[2] !== null));
      // Maps side by side have one scale for each figure.
      const alike = all.flatMap((other) => (other.grids || []).filter((o) => o.name === g.name && o.unit === g.unit));
      const found = alike.flatMap((grid) => grid.values.flat()).filter((value) => value !== null);
      const low = Math.min(...found, g.unit === '%' || found.length > 200 ? 0 : Infinity);
      const high = Math.max(...found, low);
      const few = c.x.length * c.y.length <= 150;
      const middle = (low + high) / 2;
      const dark = theme().fg.match(/\d+/g).map(Number)[0] > 128;
      const onCell = (value) => ((value > middle) === dark ? '#0e1217' : '#ffffff');
      return {
        ...base(t), grid: grid({ left: 116, bottom: 92, right: 24 }),
        tooltip: { ...tooltip(t), formatter: (p) => {
          const [x, y, value] = p.value;
          const note = (g.notes[y] || [])[x];
          return `${text(c.y_name)} ${text(c.y[y])}, ${text(c.x_name)} ${text(c.x[x])}<br>${text(g.name)}: ${withUnit(value, g.unit)}${note ? `<br>${text(note)}` : ''}`;
        } },
        xAxis: c.width_s ? columns(t, c.x, c.width_s)
          : { type: 'category', data: c.x.map(label), ...axis(t, label(c.x_name), { nameGap: 26 }), splitLine: { show: false } },
        yAxis: { type: 'category', inverse: true, data: c.y.map(label), ...axis(t, label(c.y_name), { nameGap: 92 }), splitLine: { show: false },
          axisLabel: { color: t.muted, width: 84, overflow: 'truncate' } },
        visualMap: { min: low, max: high > low ? high : low + 1, calculable: false, orient: 'horizontal', left: 'center', bottom: 0, itemHeight: 160,
          inRange: { color: [color('heat-0'), color('heat-1'), color('heat-2')] }, textStyle: { color: t.muted },
          text: [withUnit(high, g.unit), withUnit(low, g.unit)], formatter: (v) => withUnit(v, g.unit) },
        series: [{ type: 'heatmap', data: cells.map((cell) => ({ value: cell, label: { color: onCell(cell[2]) } })),
          itemStyle: few ? { borderWidth: 1, borderColor: t.card } : {}, label: { show: few, formatter: (p) => withUnit(p.value[2], g.unit) } }],
      };
    },

    ranges(c, t) {
      const low = Math.min(...c.rows.map((r) => r.low)), high = Math.max(...c.rows.map((r) => r.high));
      const ends = even(low, high, { most: 8 });
      return {
        ...base(t), grid: grid({ left: innerWidth < 700 ? 96 : 190 }),
        tooltip: { ...tooltip(t), formatter: (p) => {
          const r = c.rows[p.dataIndex];
          return `${text(r.label)}<br>${withUnit(r.at, c.x.unit)} (${withUnit(r.low, c.x.unit)} to ${withUnit(r.high, c.x.unit)})<br>${text(r.note)}`;
        } },
        xAxis: values(t, c.x, ends, { nameGap: 28 }),
        yAxis: { type: 'category', inverse: true, data: c.rows.map((r) => label(r.label)), ...axis(t, '', {}), splitLine: { show: false },
          axisLabel: { color: t.muted, width: innerWidth < 700 ? 88 : 180, overflow: 'truncate' } },
        series: [{
          type: 'custom', data: c.rows.map((r, i) => [r.low, r.high, i]), encode: { x: [0, 1], y: 2 },
          markLine: low <= 0 && high >= 0 && { symbol: 'none', silent: true, label: { show: false }, lineStyle: { color: t.muted, type: 'solid' }, data: [{ xAxis: 0 }] },
          renderItem(params, api) {
            const r = c.rows[params.dataIndex], fill = part(r.color);
            const [left, y] = api.coord([r.low, params.dataIndex]), [right] = api.coord([r.high, params.dataIndex]);
            const [at] = api.coord([r.at, params.dataIndex]);
            const line = (x1, y1, x2, y2) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style: { stroke: fill, lineWidth: 2 } });
            return { type: 'group', children: [line(left, y, right, y), line(left, y - 5, left, y + 5), line(right, y - 5, right, y + 5),
              { type: 'circle', shape: { cx: at, cy: y, r: 5 }, style: { fill } }] };
          },
        }],
      };
    },
  };

  const heights = {
    strip: (c, chosen) => Math.max(240, c.orders[chosen].rows.length * rowHeight(c.orders[chosen].rows) + 70),
    heat: (c) => Math.min(1200, Math.max(220, c.y.length * 26 + 130)),
    ranges: (c) => Math.max(200, c.rows.length * 24 + 70),
  };
  const choices = {
    strip: (c) => c.orders, heat: (c) => c.grids,
    lines: (c) => c.cumulative ? [{ name: 'share that took at most so long' }, { name: 'tail: share that took longer, logarithmic' }] : [],
  };

  const draw = (entry) => {
    const { chart, host, chosen } = entry;
    const height = heights[chart.kind];
    if (height) host.style.height = `${height(chart, chosen)}px`;
    // Many small boxes are quicker on a canvas; the rest prints sharper as SVG.
    const renderer = chart.kind === 'strip' || chart.kind === 'heat' ? 'canvas' : 'svg';
    entry.drawn = entry.drawn || echarts.init(host, null, { renderer });
    // A tip that is open would be drawn again later, on what is not there any more.
    entry.drawn.dispatchAction({ type: 'hideTip' });
    entry.drawn.resize();
    entry.drawn.setOption(kinds[chart.kind](chart, theme(), chosen), { notMerge: true });
    entry.drawn.getZr().flush();
    host.dataset.drawn = renderer;
  };

  // A chart with several figures or orders gets a chooser.
  const chooser = (entry, figure) => {
    const of = choices[entry.chart.kind];
    const list = of ? of(entry.chart) : [];
    if (list.length < 2) return;
    const line = document.createElement('label'), select = document.createElement('select');
    line.className = 'choose';
    line.append({ heat: 'Figure ', strip: 'Order ', lines: 'Scale ' }[entry.chart.kind], select);
    list.forEach((item, i) => select.append(new Option(item.name, i)));
    const title = figure.querySelector('figcaption strong').textContent, words = figure.querySelector('figcaption .says');
    select.addEventListener('change', () => {
      entry.chosen = Number(select.value);
      const { says } = list[entry.chosen];
      if (says) { words.textContent = says; entry.host.setAttribute('aria-label', `${title}. ${says}`); }
      draw(entry);
    });
    entry.host.before(line);
  };

  // Arrows walk through the points of a chart, Escape leaves.
  const keys = (entry) => {
    let at = -1, series = 0;
    entry.host.addEventListener('keydown', (event) => {
      const all = entry.drawn.getOption().series, step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], turn = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === 'Escape') { at = -1; entry.drawn.dispatchAction({ type: 'hideTip' }); return; }
      if (!step && !turn) return;
      event.preventDefault();
      if (turn) series = (series + turn + all.length) % all.length;
      const size = all[series].data.length;
      at = Math.min(size - 1, Math.max(0, at + (step || 0)));
      entry.drawn.dispatchAction({ type: 'showTip', seriesIndex: series, dataIndex: at });
    });
    entry.host.addEventListener('blur', () => entry.drawn.dispatchAction({ type: 'hideTip' }));
  };

  const data = JSON.parse(document.getElementById('figures-data').textContent);
  const all = data.map(({ chart }) => chart);
  const entries = data.map(({ id, chart }) => {
    const figure = document.getElementById(id), host = figure.querySelector('.chart');
    const entry = { chart, host, chosen: 0, drawn: null };
    chooser(entry, figure);
    draw(entry);
    keys(entry);
    return entry;
  });
  return { redraw: () => entries.forEach(draw) };
})();
