/** Reports that stand alone: one HTML file with tables and interactive plots, and the plots as SVG. */
export { documentReport } from './document.js';
export { figureSvg, reportHtml, type Figure, type Report, type ReportTable } from './page.js';
export { writeReport } from './write.js';
