// SPDX-License-Identifier: Apache-2.0

package etcdsnapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrExists is a file that is there already: a snapshot never replaces anything.
var ErrExists = errors.New("the file exists")

// Save takes a snapshot into a file that only its owner may read, checks it, and only then gives it its name. If
// anything goes wrong there is no such file afterwards, and no other either. An existing file is ErrExists.
func Save(ctx context.Context, path string, take func(context.Context, io.Writer) error) (_ *Summary, err error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = ErrExists
		}
		return nil, fmt.Errorf("save etcd snapshot %s: %w", path, err)
	}
	partial, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".partial-") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("save etcd snapshot %s: %w", path, err)
	}
	defer os.Remove(partial.Name()) //nolint:errcheck // gone once all went well
	if err := write(ctx, partial, take); err != nil {
		return nil, fmt.Errorf("save etcd snapshot %s: %w", path, err)
	}
	summary, err := Check(ctx, partial.Name())
	if err != nil {
		return nil, err
	}
	if err := name(partial.Name(), path); err != nil {
		return nil, fmt.Errorf("save etcd snapshot %s: %w", path, err)
	}
	return summary, nil
}

func write(ctx context.Context, file *os.File, take func(context.Context, io.Writer) error) error {
	err := take(ctx, file)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// name gives a file its name without ever replacing what came there meanwhile: the name is taken by an empty file first.
func name(partial, path string) error {
	reserved, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return ErrExists
	}
	if err != nil {
		return err
	}
	if err := errors.Join(reserved.Close(), os.Rename(partial, path)); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
