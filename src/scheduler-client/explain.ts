import { status, type ServiceError } from '@grpc/grpc-js';
import { DualPathError } from '../errors/index.js';
import { schedulerService, type Explanation } from '../wire/index.js';
import { errorOfStatus, metadataOf, openClient, type EndpointOptions } from './connection.js';

const timeoutMs = 10_000;

/**
 * Why a running scheduler sent a request where it went, as one JSON document.
 * @param request client/key
 * @throws INVALID_ARGUMENT for a request that it does not know, or when it keeps no decisions; PEER_LOST
 */
export async function explainRequest(
  endpoint: string,
  request: string,
  options: Omit<EndpointOptions, 'endpoints'> = {},
): Promise<string> {
  const endpointOptions = { ...options, endpoints: [endpoint] };
  const client = openClient(endpoint, endpointOptions);
  const { path, requestSerialize, responseDeserialize } = schedulerService.Explain;
  try {
    const { decisionsJson = '' } = await new Promise<Explanation>((resolve, reject) => {
      client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        { request },
        metadataOf(endpointOptions),
        { deadline: Date.now() + timeoutMs },
        (error: ServiceError | null, answer?: Explanation) => {
          if (error) reject(errorOf(endpoint, request, error));
          else resolve(answer ?? {});
        },
      );
    });
    return decisionsJson;
  } finally {
    client.close();
  }
}

function errorOf(endpoint: string, request: string, error: ServiceError): DualPathError {
  return error.code === status.NOT_FOUND
    ? new DualPathError('INVALID_ARGUMENT', `scheduler ${endpoint}: ${error.details}`, { request })
    : errorOfStatus(endpoint, error);
}
