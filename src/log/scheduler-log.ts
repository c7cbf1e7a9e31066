import type { Assignment, EngineLoad, SchedulerClient } from '../scheduler/index.js';
import { errorFields, type Log } from './fields.js';

/** What is said of an assignment, by schedulers and engines alike. */
export function assignmentFields(assignment: Assignment): object {
  const { admission, epoch, prefillEngine, decodeEngine, side, promptBlocks } = assignment;
  return {
    ...{ admission, epoch, prefill_engine: prefillEngine, decode_engine: decodeEngine, side },
    prompt_blocks: promptBlocks,
    prefill_read_blocks: assignment.prefillReadBlocks,
    decode_read_blocks: assignment.decodeReadBlocks,
  };
}

/**
 * A scheduler as an engine has it, with a line for each request that the engine is given and for each end; with level debug for
 * each stage, too. `request_id` is the request's name, the same in the scheduler's lines.
 *
 * @param fields in each line, where the log's own do not name the engine
 */
export function loggedScheduler(scheduler: SchedulerClient, log: Log, fields: object = {}): SchedulerClient {
  return {
    submit: (request) => scheduler.submit(request),
    async fetch(group: string, loads: readonly EngineLoad[], signal?: AbortSignal): Promise<Assignment[]> {
      const assignments = await scheduler.fetch(group, loads, signal);
      for (const assignment of assignments)
        log.info(
          { request_id: assignment.request, ...fields, ...assignmentFields(assignment) },
          'request taken',
        );
      return assignments;
    },
    complete(request, stage, admission) {
      scheduler.complete(request, stage, admission);
      const ends = stage === 'prefill' || stage === 'request';
      log[ends ? 'info' : 'debug']({ request_id: request, ...fields, admission, stage }, 'stage done');
    },
    fail(request, error, admission) {
      scheduler.fail(request, error, admission);
      log.warn({ request_id: request, ...fields, admission, ...errorFields(error) }, 'request failed');
    },
    cancel: (request) => scheduler.cancel(request),
    epoch: () => scheduler.epoch(),
  };
}
