//! A container in three lines. The image is the first argument, else that of the purpose `python`.

use coracle::{Container, ContainerOptions};
use coracle_context::Failure;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let options = match std::env::args().nth(1) {
        Some(image) => ContainerOptions::image(&image).mount_cwd(false),
        None => ContainerOptions::purpose("python"),
    };
    let c = Container::create(options).await?;
    c.write_file("hello.txt", "hello from Rust\n").await?;
    let r = c.exec("cat hello.txt").await?;
    print_out(&r.stdout);
    c.destroy().await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it got")]
fn print_out(text: &str) {
    print!("{text}");
}
