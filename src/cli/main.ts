#!/usr/bin/env node
import { exitCodes } from './output.js';
import { run } from './run.js';

const controller = new AbortController();
const interrupt = (): void => {
  // The second time the user means it.
  if (controller.signal.aborted) process.exit(exitCodes.interrupted.code);
  controller.abort();
};
process.on('SIGINT', interrupt);
process.on('SIGTERM', interrupt);
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // The reader of a pipe, such as head, has seen enough.
  if (error.code !== 'EPIPE') throw error;
  process.exit();
});

// An exit code and no process.exit(): what is written to a pipe is still on its way.
process.exitCode = await run(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  signal: controller.signal,
});
