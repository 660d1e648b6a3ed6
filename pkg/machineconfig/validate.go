// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

// metal is the mode that a bare-metal node validates a first configuration in: install instructions are required.
// Talos: internal/app/machined/pkg/runtime/mode.go.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// validate judges the very bytes that will be sent as the node will.
func validate(configuration []byte) error {
	provider, err := configloader.NewFromBytes(configuration)
	if err != nil {
		// The loader's own words may quote the text.
		return errors.New("the rendered configuration can't be read back")
	}
	if _, err := provider.Validate(metal{}); err != nil {
		return fmt.Errorf("the rendered configuration would be refused by Talos: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}
