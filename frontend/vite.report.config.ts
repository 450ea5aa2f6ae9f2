// Builds the charts of `sonde report --html` into one script and one style sheet, which each report holds.
import { defineConfig } from "vite"

export default defineConfig({
  publicDir: false,
  build: {
    outDir: "../src/sonde/html/static",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    reportCompressedSize: false,
    lib: {
      entry: "src/report.tsx",
      formats: ["iife"],
      name: "sonde",
      fileName: () => "charts.js",
      cssFileName: "charts",
    },
  },
  define: { "process.env.NODE_ENV": '"production"' },
})
