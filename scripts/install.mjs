#!/usr/bin/env node
/**
 * After `npm install dualpath`, and by `npm rebuild dualpath`: sees that there is an add-on for this machine.
 * The package carries some; where none of them loads, one is built from the sources in the package, if what
 * that needs is here. Downloads nothing, and never fails the installation: commands that move no bytes work
 * without the add-on, the others say what is missing.
 */
import { existsSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { addonOptions } from './setup/build.mjs';
import { cmakeBuild } from './setup/cmake.mjs';
import { root, say } from './setup/common.mjs';
import { missingForBuild } from './setup/system-packages.mjs';

function loads(path) {
  try {
    createRequire(import.meta.url)(path);
    return true;
  } catch (error) {
    if (existsSync(path)) say(`${path}: ${error.message}`);
    return false;
  }
}

const isCheckout = existsSync(join(root, 'src'));
const carried = join(root, `prebuilds/${process.platform}-${process.arch}/dualpath.node`);
if (!isCheckout && !loads(carried)) {
  const missing = missingForBuild();
  if (missing.length > 0) {
    say(`no add-on of the package runs on this ${process.platform} ${process.arch}; to build one, install`);
    say(`${missing.join(' ')} (Debian's names), then run: npm rebuild dualpath`);
  } else if (!cmakeBuild(root, 'build', addonOptions) || !loads(join(root, 'build/Release/dualpath.node'))) {
    say('the add-on could not be built; the output is above');
    // What cannot be loaded must not hide what the package carries.
    rmSync(join(root, 'build'), { recursive: true, force: true });
  }
}
