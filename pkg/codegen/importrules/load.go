// SPDX-License-Identifier: Apache-2.0

package importrules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
)

// Load asks `go list` for every package of the module in dir, with the imports of its tests.
func Load(ctx context.Context, dir string) ([]Package, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w: %s", dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return decode(bytes.NewReader(out))
}

// decode reads the stream of objects that `go list -json` prints.
func decode(r io.Reader) ([]Package, error) {
	var packages []Package
	for decoder := json.NewDecoder(r); ; {
		var listed struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := decoder.Decode(&listed); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		packages = append(packages, Package{
			Path:    listed.ImportPath,
			Imports: slices.Concat(listed.Imports, listed.TestImports, listed.XTestImports),
		})
	}
}
