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

// check judges the very bytes that will be sent as the node will. What Talos finds wrong is said to be the fault of the
// first patch with which it goes wrong.
func check(in Inputs, text []byte) error {
	err := validate(text)
	if err == nil || len(in.Patches) == 0 {
		return err
	}
	if fault := checkFirst(in, 0); fault != nil {
		return fault
	}
	guilty := in.Patches[len(in.Patches)-1].Name
	for count := 1; count < len(in.Patches); count++ {
		if fault := checkFirst(in, count); fault != nil {
			guilty, err = in.Patches[count-1].Name, fault
			break
		}
	}
	return &PatchError{Patch: guilty, Reason: withoutSecrets(err.Error(), in.Patches)}
}

// withoutSecrets takes the values of Secrets out of what Talos finds wrong with them.
func withoutSecrets(text string, patches []*Patch) string {
	for _, patch := range patches {
		for _, value := range patch.secrets {
			if value != "" {
				text = strings.ReplaceAll(text, value, secretShown)
			}
		}
	}
	return text
}

// checkFirst judges what there would be with the first patches only.
func checkFirst(in Inputs, count int) error {
	in.Patches = in.Patches[:count]
	rendering, err := render(in, nil)
	if err != nil {
		return err
	}
	text, err := rendering.encode()
	if err != nil {
		return err
	}
	return validate(text)
}

// validate judges bytes as the node will.
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
