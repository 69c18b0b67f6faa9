class Coracle < Formula
  desc "Linux machines in containers for AI agents"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  # @PLATFORMS@

  def install
    bin.install "bin/coracle"
    man1.install Dir["share/man/man1/*.1"]
    bash_completion.install "share/bash-completion/completions/coracle"
    zsh_completion.install "share/zsh/site-functions/_coracle"
    fish_completion.install "share/fish/vendor_completions.d/coracle.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/coracle --version")
  end
end
