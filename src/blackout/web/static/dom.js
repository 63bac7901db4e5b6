// Helpers to create elements and to save files.

// An HTML element: names that start with "on" are listeners, DOM properties are assigned, the rest are attributes.
export function make(tag, values = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

export function button(label, onclick, values = {}) {
  return make("button", { type: "button", onclick, ...values }, label);
}

export function options(names) {
  return names.map((name) => make("option", { value: name }, name));
}

export function field(label, control, hint = null) {
  const note = hint === null ? null : make("span", { className: "hint", id: `${control.id}-hint` }, hint);
  if (note) control.setAttribute("aria-describedby", note.id);
  return make("div", { className: "field" }, make("label", { htmlFor: control.id }, label), control, note);
}

// A checkbox or a radio button with its label.
export function tick(label, values) {
  return make("div", { className: "tick" }, make("input", values), make("label", { htmlFor: values.id }, label));
}

export function alertLine() {
  return make("p", { className: "alert", role: "alert", hidden: true });
}

export function showAlert(element, text) {
  element.textContent = text;
  element.hidden = !text;
  if (text) element.scrollIntoView({ block: "nearest" });
}

export function save(name, blob) {
  const url = URL.createObjectURL(blob);
  make("a", { download: name, href: url }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Code in a box with a button that copies it or, where the browser does not allow that, selects it.
export function codeBox(label, text = "") {
  // Lines break between words only: a browser would also break them after the hyphens of options.
  const code = make("code", {}, ...text.split(/(\s+)/).map((part) => (part.trim() ? make("span", {}, part) : part)));
  const status = make("span", { className: "hint", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      status.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(code);
      status.textContent = "Selected: copy it with the keyboard.";
    }
    setTimeout(() => (status.textContent = ""), 4000);
  };
  return make("div", { className: "code" },
    make("div", { className: "bar" }, make("span", {}, label), status,
      button("Copy", copy, { className: "small", "aria-label": `Copy: ${label}` })),
    make("pre", { tabIndex: 0, "aria-label": label }, code));
}
