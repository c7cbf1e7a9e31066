export interface ApiErrorOptions {
  /** OpenAI's field `type`; default by the status. */
  readonly type?: string;
  readonly code?: string;
  /** The member of the body that is wrong. */
  readonly param?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** An answer that is an error, in the shape OpenAI's clients read. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly status: number;
  readonly options: ApiErrorOptions;

  constructor(status: number, message: string, options: ApiErrorOptions = {}) {
    super(message);
    this.status = status;
    this.options = options;
  }
}

const types: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
};

/** `{"error": {"message", "type", "param", "code"}}`, as the OpenAI API reference has it. */
export function errorBody({ status, message, options }: ApiError): string {
  const type = options.type ?? types[status] ?? (status < 500 ? 'invalid_request_error' : 'server_error');
  return JSON.stringify({
    error: { message, type, param: options.param ?? null, code: options.code ?? null },
  });
}
