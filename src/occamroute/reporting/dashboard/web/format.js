// Numbers as people read them.

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

const raised = (exponent) =>
  (exponent < 0 ? "⁻" : "") + [...String(Math.abs(exponent))].map((digit) => SUPERSCRIPTS[digit]).join("");

export const count = (value) => whole.format(value);

export const counted = (value, one, many = `${one}s`) => (value === 1 ? `one ${one}` : `${count(value)} ${many}`);

/** About so many digits, whatever the size. */
export const number = (value, digits = 4) => {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-4 || size >= 1e9) {
    const [front, exponent] = value.toExponential(digits - 1).split("e");
    return `${String(Number(front))}·10${raised(Number(exponent))}`.replace("-", "−");
  }
  const options = size >= 1000 ? { maximumFractionDigits: size >= 10 ** digits ? 0 : 1 } : { maximumSignificantDigits: digits };
  return new Intl.NumberFormat("en", options).format(value).replace("-", "−");
};

export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits).replace("-", "−")} %`;

export const points = (difference) => {
  const size = Math.abs(100 * difference);
  return `${size.toFixed(size < 0.095 ? 2 : 1)} points`;
};

export const signedPoints = (difference) => (Math.abs(difference) < 5e-5 ? "same accuracy" : `${difference < 0 ? "−" : "+"}${points(difference)}`);

export const moment = (seconds) => new Date(1000 * seconds).toLocaleString("en-GB", { hour12: false });

export const duration = (seconds) => {
  const parts = [[86400, "day"], [3600, "hour"], [60, "minute"]];
  for (const [size, name] of parts) {
    if (seconds >= size) {
      const times = Math.round(seconds / size);
      return `${times} ${name}${times === 1 ? "" : "s"}`;
    }
  }
  return "less than a minute";
};
