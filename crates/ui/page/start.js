// Runs before the page is drawn: it is drawn in the chosen theme, and loaded again if a part of it did not come.
(() => {
  const root = document.documentElement;
  const apply = (theme) => { theme ? root.dataset.theme = theme : delete root.dataset.theme; };
  apply(localStorage.getItem("theme") || "");
  document.addEventListener("themechoice", ({ detail }) => {
    localStorage.setItem("theme", detail);
    apply(detail);
    document.dispatchEvent(new Event("themechange"));
  });
  // A browser breaks off what is on its way when a network interface comes or goes, as those of containers do.
  const PAUSE = 2000;
  addEventListener("error", ({ target }) => {
    if (target.tagName !== "SCRIPT" && target.tagName !== "LINK") return;
    const last = Number(sessionStorage.getItem("reloaded") || 0);
    sessionStorage.setItem("reloaded", String(Date.now()));
    setTimeout(() => location.reload(), Date.now() - last < PAUSE * 2 ? PAUSE : 0);
  }, true);
})();
