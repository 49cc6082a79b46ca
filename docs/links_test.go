package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)]*)\)`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	// repoPath matches text in backquotes that may be a path in the repository. It is a path
	// if it begins with a folder of the repository.
	repoPath = regexp.MustCompile("`(\\w+)(/[\\w./-]+)`")
)

// TestLinks: the files, folders and anchors that the pages name exist.
func TestLinks(t *testing.T) {
	var pages []string
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && path[0] == '.' {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 8 {
		t.Fatalf("only %d pages", len(pages))
	}
	for _, page := range pages {
		text := fenced.ReplaceAllString(read(t, page), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := m[1]
			if strings.Contains(target, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			if file = filepath.Join(filepath.Dir(page), file); strings.HasPrefix(target, "#") {
				file = page
			}
			if _, err := os.Stat(filepath.Join("..", file)); err != nil {
				t.Errorf("%s links to %s: %v", page, target, err)
			} else if anchor != "" && !anchors(read(t, file))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", page, target)
			}
		}
		for _, m := range repoPath.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
				continue
			}
			if _, err := os.Stat(filepath.Join("..", m[1]+m[2])); err != nil && filepath.Base(m[2]) != "NAME" {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var notInAnchors = regexp.MustCompile(`[^\w\- ]`)

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all[strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}
