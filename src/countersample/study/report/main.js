// Fill what the page has left free for curves, and show in the contents where the reader is.

function start() {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  for (const host of document.querySelectorAll("div.curves")) {
    showCurves(host, data.curves[host.dataset.section]);
  }
  for (const host of document.querySelectorAll("div.toy")) {
    showToy(host, data.toys[host.dataset.section]);
  }
  followReading();
}

function followReading() {
  const links = new Map();
  for (const link of document.querySelectorAll("nav a")) links.set(link.hash.slice(1), link);
  const [summary] = links.values();
  summary.setAttribute("aria-current", "true");
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id).setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -75% 0px" }); // a section is read once its top is well in view
  for (const section of document.querySelectorAll("main > section")) observer.observe(section);
}

start();
