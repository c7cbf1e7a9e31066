/** Programs and abort signals. */
import type { Program, ProgramResult, TransferEngine } from '../transfer/index.js';

/** Awaits a program; an aborted signal cancels it, and it still ends before this returns. */
export async function settle(
  engine: TransferEngine,
  program: Program,
  signal: AbortSignal | undefined,
): Promise<ProgramResult> {
  const cancel = (): void => engine.cancel(program);
  if (signal?.aborted === true) cancel();
  signal?.addEventListener('abort', cancel, { once: true });
  try {
    return await program.done;
  } finally {
    signal?.removeEventListener('abort', cancel);
  }
}
