import { afterEach, describe, expect, it } from 'vitest';
import { fioArguments, fioSlice, fioVersion, parseFio } from '../../src/bench/fio.js';

const document = {
  jobs: [
    {
      error: 0,
      usr_cpu: 2,
      sys_cpu: 8,
      read: {
        io_bytes: 1e9,
        runtime: 1000,
        bw_bytes: 1e9,
        iops: 1000,
        lat_ns: { mean: 2e6 },
        clat_ns: { percentile: { '50.000000': 1e6, '99.000000': 9e6 } },
      },
    },
  ],
};

describe('fio', () => {
  const path = process.env['PATH'];
  afterEach(() => {
    process.env['PATH'] = path;
  });

  it('is read by the names it gives', () => {
    expect(parseFio(`fio: a warning\n${JSON.stringify(document)}`)).toEqual({
      bytesPerS: 1e9,
      operationsPerS: 1000,
      cpuNsPerByte: 0.1, // 10 % of a second for 10^9 bytes
      latencyMeanUs: 2000,
      latencyP50Us: 1000,
      latencyP99Us: 9000,
    });
  });

  it('that failed or read nothing is no figure', () => {
    expect(() => parseFio(JSON.stringify({ jobs: [{ ...document.jobs[0], error: 5 }] }))).toThrow('error 5');
    expect(() => parseFio('{}')).toThrow('read nothing');
  });

  it('gets the same load', () => {
    const given = fioArguments({
      path: '/kv/file',
      fileBytes: 1 << 20,
      bytes: 4096,
      depth: 8,
      runtimeS: 0.25,
    });
    for (const option of [
      '--fixedbufs=1',
      '--registerfiles=1',
      '--direct=1',
      '--ioengine=io_uring',
      '--rw=randread',
    ])
      expect(given).toContain(option);
    expect(given).toEqual(expect.arrayContaining(['--bs=4096', '--iodepth=8', '--runtime=250ms']));
  });

  it('that is missing is named with the remedy', async () => {
    process.env['PATH'] = '';
    await expect(fioVersion()).rejects.toThrow('apt-get install fio');
  });

  it('that cannot read says why', async () => {
    const slice = fioSlice({
      path: '/dev/null/file',
      fileBytes: 1 << 20,
      bytes: 4096,
      depth: 1,
      runtimeS: 0.1,
    });
    await expect(slice).rejects.toMatchObject({ code: 'STORAGE_IO' });
  });
});
