// Builds the pages into the Python package; `npm run dev` serves them while you work, with the data of a running `sonde ui`.
import { defineConfig } from "vitest/config"

// `sonde ui --no-open --port 8700 --token dev`: the data for `npm run dev`.
const server = "http://127.0.0.1:8700"

export default defineConfig({
  build: {
    outDir: "../src/sonde/web/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    proxy: { "/api": { target: server, changeOrigin: true, headers: { authorization: "Bearer dev" } } },
  },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
})
