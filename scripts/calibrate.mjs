#!/usr/bin/env node
// Refits the simulator's four constants and prints what src/simulator/constants.ts and docs/simulator.md hold:
// node scripts/calibrate.mjs [--rounds 3] [--threads 2]. Needs npm run build:ts.
import { parseArgs } from 'node:util';
import { calibrate } from '../dist/simulator/calibrate.js';

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '3' }, threads: { type: 'string', default: '2' } },
});
const onRound = (rms) => process.stderr.write(`rms error ${(100 * rms).toFixed(2)} %\n`);
const result = await calibrate({ rounds: Number(values.rounds), threads: Number(values.threads), onRound });
process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
