// A value of an item: a picture, a curve or numbers; enlarged, every single number can be pointed at.
import { useEffect, useRef, useState } from "preact/hooks"
import { askArray, type Numbers } from "../api/array"
import type { ItemValue } from "../api/types"
import { place, setQuery } from "../app/router"
import { brief, count, plural } from "../app/units"
import { type Extent, extent, histogram, pixels } from "./pixels"
import { Choice } from "./Small"
import "./array.css"

interface Props {
  title: string
  picture: string | null
  curve: ItemValue["curve"]
  numbers: string[]
  /** Where the whole array is; null: it is not kept. */
  path: string | null
  /** What black and white stand for, of all items alike. */
  scale?: Extent
}

/** Which array is enlarged is in the address. */
export function ArrayView({ title, picture, curve, numbers, path, scale }: Props) {
  const open = path !== null && place.value.query.array === path
  const enlarge = () => setQuery({ array: path }, { replace: true })
  const small = picture ? (
    <img src={picture} alt="" />
  ) : curve ? (
    <Curve curve={curve} />
  ) : (
    <code class="numbers">{numbers.join(", ")}</code>
  )
  return (
    <>
      {path ? (
        <button type="button" class="array" onClick={enlarge}>
          <span class="hidden">Enlarge {title}</span>
          {small}
        </button>
      ) : (
        <div class="array">{small}</div>
      )}
      {open && <Enlarged title={title} path={path} {...(scale ? { scale } : {})} />}
    </>
  )
}

function Curve({ curve }: { curve: NonNullable<ItemValue["curve"]> }) {
  const known = [...curve.low, ...curve.high].filter((value): value is number => value !== null)
  const { low, high } = extent(known)
  const y = (value: number) => (58 - (54 * (value - low)) / (high - low || 1)).toFixed(1)
  const x = (at: number) => ((300 * (at + 0.5)) / curve.low.length).toFixed(1)
  const points = curve.low.flatMap((value, at) => (value === null ? [] : [{ at, value, top: curve.high[at] ?? value }]))
  return (
    <svg viewBox="0 0 300 60" preserveAspectRatio="none" aria-hidden="true" class="curve">
      {points.map(one => (
        <line key={one.at} x1={x(one.at)} x2={x(one.at)} y1={y(one.value)} y2={Number(y(one.top)) - 0.6} />
      ))}
      {curve.bad.map(at => (
        <line key={`bad-${at}`} class="bad" x1={x(at)} x2={x(at)} y1="0" y2="60" />
      ))}
    </svg>
  )
}

function Enlarged({ title, path, scale }: { title: string; path: string; scale?: Extent }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [found, setFound] = useState<Numbers | string | null>(null)
  useEffect(() => dialog.current?.showModal(), [])
  useEffect(() => {
    let wanted = true
    void askArray(path).then(answer => wanted && setFound("values" in answer ? answer : answer.message))
    return () => {
      wanted = false
    }
  }, [path])
  const close = () => setQuery({ array: null }, { replace: true })
  return (
    <dialog class="enlarged" ref={dialog} aria-label={title} onClose={close}>
      <header>
        <h2>{title}</h2>
        <button type="button" onClick={close}>
          Close
        </button>
      </header>
      {found === null ? (
        <p class="soft">Reading the numbers …</p>
      ) : typeof found === "string" ? (
        <p role="alert">{found}</p>
      ) : (
        <Whole found={found} {...(scale ? { common: scale } : {})} />
      )}
    </dialog>
  )
}

function Whole({ found, common }: { found: Numbers; common?: Extent }) {
  const { head, values } = found
  const own = extent(values)
  const [alike, setAlike] = useState(true)
  const scale = common && alike ? common : own
  const bad = values.reduce((sum, value) => sum + (Number.isFinite(value) ? 0 : 1), 0)
  return (
    <>
      <p class="soft small">
        {head.shape.join(" x ")}, {head.dtype}: {brief(own.low)} to {brief(own.high)}
        {bad > 0 && <b class="worst">, {plural(bad, "value")} NaN or infinite</b>}
        {head.stride > 1 && `; each ${head.stride}th row and column is shown`}
      </p>
      {head.image ? (
        <Picture values={values} image={head.image} stride={head.stride} scale={scale} />
      ) : (
        <List values={values} />
      )}
      {head.image && common && (
        <Choice
          label="Black and white"
          options={[
            ["all", `Scale of all items: ${brief(common.low)} to ${brief(common.high)}`],
            ["own", "Its own"],
          ]}
          value={alike ? "all" : "own"}
          onChoose={chosen => setAlike(chosen === "all")}
        />
      )}
      <Histogram values={values} />
    </>
  )
}

const SIDE = 520 // px of the longer side

interface PictureProps {
  values: Float64Array
  image: [number, number, number]
  stride: number
  scale: Extent
}

function Picture({ values, image, stride, scale }: PictureProps) {
  const [height, width, colours] = image
  const canvas = useRef<HTMLCanvasElement>(null)
  const [channel, setChannel] = useState("all")
  const [at, setAt] = useState<[number, number]>(() => firstBad(values, image))
  useEffect(() => {
    const context = canvas.current?.getContext("2d")
    const data = pixels(values, image, scale, channel === "all" ? null : Number(channel))
    context?.putImageData(new ImageData(data, width, height), 0, 0)
  }, [values, image, scale, channel, width, height])
  const point = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect()
    const row = Math.floor(((event.clientY - box.top) / box.height) * height)
    const column = Math.floor(((event.clientX - box.left) / box.width) * width)
    setAt([clamp(row, height), clamp(column, width)])
  }
  const pressed = (event: KeyboardEvent) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key]
    if (!move) return
    event.preventDefault()
    setAt([clamp(at[0] + (move[0] as number), height), clamp(at[1] + (move[1] as number), width)])
  }
  const own = Array.from({ length: colours }, (_, colour) => brief(numberAt(values, image, at, colour)))
  const told = `row ${at[0] * stride}, column ${at[1] * stride}: ${own.join(", ")}`
  const zoom = SIDE / Math.max(width, height)
  return (
    <>
      <div
        class="pixels"
        role="slider"
        tabIndex={0}
        aria-label="Pixel: use the arrow keys"
        aria-valuenow={at[0] * width + at[1]}
        aria-valuemin={0}
        aria-valuemax={width * height - 1}
        aria-valuetext={told}
        onPointerMove={point}
        onPointerDown={point}
        onKeyDown={pressed}
        style={{ width: `${width * zoom}px`, aspectRatio: `${width} / ${height}` }}
      >
        <canvas ref={canvas} width={width} height={height} />
        <i
          style={{
            left: `${(100 * at[1]) / width}%`,
            top: `${(100 * at[0]) / height}%`,
            width: `${100 / width}%`,
            height: `${100 / height}%`,
          }}
        />
      </div>
      <p class="pixel" role="status">
        {told}
      </p>
      {colours > 1 && (
        <Choice
          label="Colour"
          options={[["all", "All colours"], ...own.map((_, colour) => [String(colour), `Channel ${colour}`] as const)]}
          value={channel}
          onChoose={setChannel}
        />
      )}
    </>
  )
}

const clamp = (value: number, size: number) => Math.min(Math.max(value, 0), size - 1)

function numberAt(
  values: Float64Array,
  [, width, colours]: [number, number, number],
  [row, column]: [number, number],
  colour: number,
) {
  const value = values[(row * width + column) * colours + colour] as number
  return Number.isNaN(value)
    ? "NaN"
    : value === Number.POSITIVE_INFINITY
      ? "Infinity"
      : value === Number.NEGATIVE_INFINITY
        ? "-Infinity"
        : value
}

/** Where to look first: at what is not finite. */
function firstBad(values: Float64Array, [, width, colours]: [number, number, number]): [number, number] {
  const found = values.findIndex(value => !Number.isFinite(value))
  if (found < 0) return [0, 0]
  const pixel = Math.floor(found / colours)
  return [Math.floor(pixel / width), pixel % width]
}

const MOST = 500 // numbers that are written out

function List({ values }: { values: Float64Array }) {
  const shown = [...values.slice(0, MOST)]
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be reached by keyboard
    <section class="listing" tabIndex={0} aria-label="Numbers">
      <ol start={0}>
        {shown.map((value, at) => (
          <li key={at} class={Number.isFinite(value) ? undefined : "worst"}>
            {Number.isNaN(value) ? "NaN" : Number.isFinite(value) ? brief(value) : value > 0 ? "infinity" : "-infinity"}
          </li>
        ))}
      </ol>
      {values.length > MOST && <p class="soft small">{count(values.length - MOST)} more.</p>}
    </section>
  )
}

function Histogram({ values }: { values: Float64Array }) {
  const scale = extent(values)
  const bins = histogram(values, scale, 48)
  const most = bins.reduce((a, b) => Math.max(a, b), 1)
  return (
    <figure class="histogram">
      <svg
        viewBox="0 0 480 60"
        preserveAspectRatio="none"
        role="img"
        aria-label={`Histogram from ${brief(scale.low)} to ${brief(scale.high)}`}
      >
        {bins.map((amount, at) => (
          <rect key={at} x={at * 10 + 0.5} width={9} y={60 - (58 * amount) / most} height={(58 * amount) / most} />
        ))}
      </svg>
      <figcaption>
        <span>{brief(scale.low)}</span>
        <span>{brief(scale.high)}</span>
      </figcaption>
    </figure>
  )
}
