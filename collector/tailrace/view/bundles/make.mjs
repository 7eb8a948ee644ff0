// Make the page's bundles from the libraries that package-lock.json pins:
//
//     node make.mjs [DIRECTORY]
//
// DIRECTORY is ../page/vendor unless given. Needs node and npm. Writes a module for each library, the style sheet
// of uPlot, the libraries' licences, and SHA256SUMS of them all. The same pins give the same bytes.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../page/vendor"));
const MODULES = {
  "codemirror.js": "./codemirror.js",
  "regular-table.js": "regular-table",
  "uplot.js": "uplot",
  "uplot.css": "uplot/dist/uPlot.min.css",
};
const INPUTS = ["package.json", "package-lock.json", ".npmrc", "codemirror.js"];

function licences(modules) {
  const lock = JSON.parse(readFileSync(join(here, "package-lock.json"), "utf8"));
  const texts = [];
  for (const [path, facts] of Object.entries(lock.packages)) {
    if (path === "" || facts.dev) continue;
    const directory = join(modules, path.slice("node_modules/".length));
    const file = readdirSync(directory).find((name) => /^licen[cs]e/i.test(name));
    const name = path.slice("node_modules/".length);
    texts.push(`${name} ${facts.version} (${facts.license})\n\n${readFileSync(join(directory, file), "utf8").trim()}\n`);
  }
  return texts.join(`\n${"-".repeat(72)}\n\n`);
}

async function bundle(build, directory) {
  for (const [name, entry] of Object.entries(MODULES)) {
    await build({
      entryPoints: [entry],
      outfile: join(target, name),
      absWorkingDir: directory,
      bundle: true,
      minify: true,
      format: "esm",
      target: "es2022",
      charset: "utf8",
      legalComments: "inline",
      logLevel: "warning",
    });
  }
}

const directory = mkdtempSync(join(tmpdir(), "tailrace-bundles-"));
try {
  for (const input of INPUTS) cpSync(join(here, input), join(directory, input));
  // Nothing of a package runs while npm installs it; esbuild's program is a package of its own.
  execFileSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: directory, stdio: ["ignore", 2, 2] });
  mkdirSync(target, { recursive: true });
  const modules = join(directory, "node_modules");
  const { build } = createRequire(join(directory, "package.json"))("esbuild");
  await bundle(build, directory);
  writeFileSync(join(target, "LICENSES.txt"), licences(modules));
  const sums = [...Object.keys(MODULES), "LICENSES.txt"].sort().map((name) => {
    const hash = createHash("sha256").update(readFileSync(join(target, name))).digest("hex");
    return `${hash}  ${name}\n`;
  });
  writeFileSync(join(target, "SHA256SUMS"), sums.join(""));
} finally {
  rmSync(directory, { recursive: true });
}
