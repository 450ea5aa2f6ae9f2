// Numbers as brightness: what a canvas gets, and what stands under the mouse.

export const NOT_FINITE = [230, 30, 90] as const // as in src/sonde/picture.py

export interface Extent {
  low: number
  high: number
}

/** From the least to the most of what is finite. */
export function extent(values: ArrayLike<number>): Extent {
  let low = Number.POSITIVE_INFINITY
  let high = Number.NEGATIVE_INFINITY
  for (let at = 0; at < values.length; at++) {
    const value = values[at] as number
    if (!Number.isFinite(value)) continue
    if (value < low) low = value
    if (value > high) high = value
  }
  return low <= high ? { low, high } : { low: 0, high: 0 }
}

/** The pixels of an image, as red, green, blue and opaqueness. `channel` null: all colours, where there are three. */
export function pixels(
  values: ArrayLike<number>,
  image: readonly [number, number, number],
  scale: Extent,
  channel: number | null,
): Uint8ClampedArray<ArrayBuffer> {
  const [height, width, colours] = image
  const found = new Uint8ClampedArray(height * width * 4)
  const span = scale.high - scale.low || 1
  const channels = channel !== null ? [channel, channel, channel] : colours >= 3 ? [0, 1, 2] : [0, 0, 0]
  for (let at = 0; at < height * width; at++) {
    const own = channels.map(one => values[at * colours + one] as number)
    const good = own.every(Number.isFinite)
    for (let place = 0; place < 3; place++)
      found[at * 4 + place] = good ? (255 * ((own[place] as number) - scale.low)) / span : (NOT_FINITE[place] as number)
    found[at * 4 + 3] = 255
  }
  return found
}

/** How many values are how large. */
export function histogram(values: ArrayLike<number>, scale: Extent, bins: number): number[] {
  const found = new Array<number>(bins).fill(0)
  const span = scale.high - scale.low || 1
  for (let at = 0; at < values.length; at++) {
    const value = values[at] as number
    if (!Number.isFinite(value)) continue
    const place = Math.min(bins - 1, Math.floor(((value - scale.low) / span) * bins))
    found[place] = (found[place] ?? 0) + 1
  }
  return found
}
