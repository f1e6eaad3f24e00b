"""Pages as lists of elements."""

from html.parser import HTMLParser

VOID = {"meta", "img", "path", "use", "rect", "circle"}


class Page(HTMLParser):
    """The page as a list of elements with their text, with balance checked."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", **dict(attrs)}
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append({"tag": tag, "text": "", **dict(attrs)})

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def all(self, tag, **attributes):
        return [
            element
            for element in self.elements
            if element["tag"] == tag
            and all(element.get(key) == value for key, value in attributes.items())
        ]
