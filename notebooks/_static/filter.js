// A box above the catalogue: only the rows that have all of its words stay.
document.addEventListener("DOMContentLoaded", () => {
    const page = document.getElementById("catalogue");
    if (!page) return;
    const box = document.createElement("input");
    box.type = "search";
    box.placeholder = "filter, such as: window no";
    box.setAttribute("aria-label", "Filter the catalogue");
    box.className = "catalogue-filter";
    page.querySelector("p").after(box);
    box.addEventListener("input", () => {
        const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
        for (const part of page.querySelectorAll("section")) {
            let shown = 0;
            for (const row of part.querySelectorAll("tbody tr")) {
                const text = row.textContent.toLowerCase();
                row.hidden = !words.every((word) => text.includes(word));
                shown += !row.hidden;
            }
            part.hidden = !shown;
        }
    });
});
