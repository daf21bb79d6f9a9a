'use strict';
// Elements are made of text only: keys and paths are chosen by clients.
// Characters that cannot be seen, or that turn what follows around, are shown as their numbers; lines break as they are written.
const unseen = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const visible = text => String(text).replace(unseen, c => `\\u{${c.charCodeAt(0).toString(16)}}`);
function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'text') node.textContent = visible(value);
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  const given = children.filter(child => child !== null && child !== undefined);
  node.append(...given.map(child => child instanceof Node ? child : visible(child)));
  return node;
}
function svg(name, attributes, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = visible(text);
  return node;
}
